"""Whose turn is it to be read, and who reads it? A queue in the database: a job is leased to one server, which renews the lease while it works.

A server that dies stops renewing; its jobs go back into the queue, at once where it is plain that the process is gone. Whatever a
server does to a job it does only while the lease is its own, so two never both finish one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

from sqlalchemy import Connection, and_, delete, func, insert, or_, select, update

from dashboard.store import runs
from dashboard.store.rows import JobProgress, State, Summary
from dashboard.store.tables import jobs
from dashboard.store.tables import runs as run_table

#: A way for a job to end: (connection, run, worker, …).
Ending = Callable[..., bool]
#: Seconds after which a job whose server says nothing is somebody else's.
LEASE_S = 30.0
#: A job that took so many servers with it is not tried again.
MOST_ATTEMPTS = 3
_FRESH: dict[str, Any] = {
    "worker": None,
    "lease_until": None,
    "stage": State.QUEUED,
    "started_at": None,
    "done": 0,
    "total": 0,
    "events": 0,
    "events_per_s": None,
    "seconds_left": None,
    "share": None,
    "ranks_read": "[]",
    "message": "",
}


def put(db: Connection, id: str, now: float) -> None:
    """Queue a run, as if it had never been tried."""
    db.execute(delete(jobs).where(jobs.c.run_id == id))
    db.execute(insert(jobs).values(run_id=id, queued_at=now, attempts=0, cancelled=False, **_FRESH))
    runs.change(db, id, state=State.QUEUED, error=None, opened_at=now)


def claim(db: Connection, worker: str, now: float) -> str | None:
    """Lease the job that has waited longest; its run, or None where none waits."""
    waiting = select(jobs.c.run_id).where(jobs.c.worker.is_(None), jobs.c.cancelled.is_(False))
    id = db.execute(waiting.order_by(jobs.c.queued_at, jobs.c.run_id).limit(1).with_for_update(skip_locked=True)).scalar()
    if id is None:
        return None
    values: dict[str, Any] = {**_FRESH, "worker": worker, "lease_until": now + LEASE_S, "stage": State.READING, "started_at": now}
    db.execute(update(jobs).where(jobs.c.run_id == id).values(**values, attempts=jobs.c.attempts + 1))
    runs.change(db, id, state=State.READING, error=None)
    return str(id)


def renew(db: Connection, id: str, worker: str, now: float, **progress: Any) -> bool:
    """Keep a lease and say how far the job is; False where it is lost or the job is cancelled: stop then."""
    if "ranks_read" in progress:
        progress["ranks_read"] = json.dumps(sorted(progress["ranks_read"]))
    kept = db.execute(
        update(jobs).where(jobs.c.run_id == id, jobs.c.worker == worker, jobs.c.cancelled.is_(False)).values(lease_until=now + LEASE_S, **progress)
    )
    if kept.rowcount and "stage" in progress:
        runs.change(db, id, state=progress["stage"], opened_at=now)  # its time to live begins when its results are there
    return kept.rowcount > 0


def publish(db: Connection, id: str, worker: str, folder: str, summary: Summary, partial: bool, stored: int) -> bool:
    """Show a new analysis of a run; False where the lease is lost. One of some ranks never takes the place of one of all."""
    if not _held(db, id, worker):
        return False
    if partial and db.execute(select(run_table.c.id).where(run_table.c.id == id, run_table.c.generation > 0, run_table.c.partial.is_(False))).first():
        return True
    shown = {name: getattr(summary, name) for name in Summary.__dataclass_fields__}
    runs.change(db, id, analysis=folder, generation=run_table.c.generation + 1, partial=partial, stored_bytes=stored, **shown)
    return True


def end(db: Connection, id: str, worker: str, state: State, error: str | None = None) -> bool:
    """The job is over; False where the lease is lost."""
    if not _held(db, id, worker):
        return False
    db.execute(update(jobs).where(jobs.c.run_id == id).values(worker=None, lease_until=None, cancelled=True, seconds_left=None))
    runs.change(db, id, state=state, error=error)
    return True


def release(db: Connection, id: str, worker: str) -> bool:
    """Put a job back into the queue, as if it had not been begun; False where the lease is lost."""
    if not _held(db, id, worker):
        return False
    db.execute(update(jobs).where(jobs.c.run_id == id).values(**_FRESH, attempts=jobs.c.attempts - 1))
    runs.change(db, id, state=State.QUEUED)
    return True


def let_go(db: Connection, id: str, worker: str) -> bool:
    """Say that nobody works on a cancelled job any more; False where the lease is lost."""
    gone = db.execute(update(jobs).where(jobs.c.run_id == id, jobs.c.worker == worker).values(worker=None, lease_until=None))
    return gone.rowcount > 0


def cancel(db: Connection, id: str) -> bool:
    """Stop a job, be it waiting or at work; False where it is over."""
    stopped = db.execute(update(jobs).where(jobs.c.run_id == id, jobs.c.cancelled.is_(False)).values(cancelled=True, seconds_left=None))
    if stopped.rowcount:
        runs.change(db, id, state=State.CANCELLED, error=None)
    return stopped.rowcount > 0


def leases(db: Connection) -> list[tuple[str, str]]:
    """(run, worker) of every job at work."""
    return [(str(r), str(w)) for r, w in db.execute(select(jobs.c.run_id, jobs.c.worker).where(jobs.c.worker.is_not(None)))]


def waiting(db: Connection) -> int:
    """How many jobs wait."""
    return int(db.execute(select(func.count()).select_from(jobs).where(jobs.c.worker.is_(None), jobs.c.cancelled.is_(False))).scalar_one())


def overdue(db: Connection, now: float, alive: Collection[str] = ()) -> bool:
    """Whether a lease has run out, of those that are not known to be alive."""
    late = select(jobs.c.run_id).where(jobs.c.worker.is_not(None), jobs.c.lease_until < now, jobs.c.worker.not_in(alive))
    return db.execute(late.limit(1)).first() is not None


def reclaim(db: Connection, now: float, dead: Collection[str] = (), alive: Collection[str] = ()) -> int:
    """Queue what servers have left behind: their leases have run out, or they are known to be dead. How many jobs.

    A job that was tried too often fails instead: what kills one server after the other is not tried for ever. A clock that was set
    forward, or a machine that slept, makes leases run out whose work goes on: those in ``alive`` are left alone.
    """
    late = and_(jobs.c.lease_until < now, jobs.c.worker.not_in(alive))
    left = db.execute(select(jobs.c.run_id, jobs.c.attempts, jobs.c.cancelled).where(jobs.c.worker.is_not(None), or_(late, jobs.c.worker.in_(dead)))).all()
    for id, attempts, cancelled in left:
        if cancelled:
            db.execute(update(jobs).where(jobs.c.run_id == id).values(worker=None, lease_until=None))
        elif attempts >= MOST_ATTEMPTS:
            says = (
                f"reading it was begun {attempts} times and never ended: the server stopped each time; read it on the command line, or record a shorter window"
            )
            db.execute(update(jobs).where(jobs.c.run_id == id).values(worker=None, lease_until=None, cancelled=True))
            runs.change(db, id, state=State.FAILED, error=says)
        else:
            says = "the server was stopped while it read this; it begins again"
            db.execute(update(jobs).where(jobs.c.run_id == id).values(**{**_FRESH, "message": says}))
            runs.change(db, id, state=State.QUEUED)
    return len(left)


def progress(db: Connection, id: str) -> JobProgress | None:
    """How far a run is; None where there is no such run."""
    found = db.execute(
        select(jobs, run_table.c.state, run_table.c.error).select_from(run_table.outerjoin(jobs, jobs.c.run_id == run_table.c.id)).where(run_table.c.id == id)
    )
    row = found.mappings().first()
    if row is None:
        return None
    state = State(row["state"])
    ranks = tuple(int(r) for r in json.loads(row["ranks_read"] or "[]"))
    return JobProgress(
        state=state,
        stage=_stage(state, row["stage"]),
        done=row["done"] or 0,
        total=row["total"] or 0,
        events=row["events"] or 0,
        events_per_s=row["events_per_s"],
        seconds_left=row["seconds_left"],
        ranks_read=ranks,
        message=row["message"] or "",
        error=row["error"],
        share=row["share"],
    )


def waiting_before(db: Connection, id: str) -> int:
    """How many jobs come before this one in the queue."""
    own = select(jobs.c.queued_at).where(jobs.c.run_id == id).scalar_subquery()
    before = select(jobs.c.run_id).where(jobs.c.worker.is_(None), jobs.c.cancelled.is_(False), jobs.c.queued_at < own)
    return len(db.execute(before).all())


def _stage(state: State, reached: str | None) -> str:
    """The stage a job is in; of one that failed or was cancelled, the one it was in then (which earlier versions did not keep: reading)."""
    if state not in (State.FAILED, State.CANCELLED):
        return str(state)
    return reached if reached in (State.QUEUED, State.ANALYSING) else str(State.READING)


def _held(db: Connection, id: str, worker: str) -> bool:
    """Whether the job is this server's to end; the row stays locked until the transaction ends."""
    mine = select(jobs.c.run_id).where(jobs.c.run_id == id, jobs.c.worker == worker, jobs.c.cancelled.is_(False))
    return db.execute(mine.with_for_update()).scalar() is not None
