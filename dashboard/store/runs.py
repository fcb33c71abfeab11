"""How are runs written down, found and counted? Every query on runs, files and tags; each within the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, RowMapping, delete, exists, func, insert, or_, select, update

from dashboard.store.rows import RunRow, State
from dashboard.store.tables import files, runs, tags

_NOT_WORTH_KEEPING = (State.FAILED, State.CANCELLED)


@dataclass(frozen=True)
class FileRow:
    """One file of a run: where it stands in the run's folder, what its sender called it, its size and hash."""

    place: str
    label: str
    nbytes: int
    sha256: str


def add(db: Connection, id: str, name: str, owner: str, fingerprint: str, stored: Sequence[FileRow], now: float) -> None:
    """Write a new run down, its job not yet."""
    nbytes = sum(f.nbytes for f in stored)
    row = {"id": id, "name": name, "owner": owner, "state": State.QUEUED, "created_at": now, "opened_at": now, "nbytes": nbytes, "stored_bytes": nbytes}
    db.execute(insert(runs).values(**row, fingerprint=fingerprint, generation=0, partial=False))
    db.execute(insert(files), [{"run_id": id, "place": f.place, "label": f.label, "nbytes": f.nbytes, "sha256": f.sha256} for f in stored])


def one(db: Connection, id: str) -> RunRow | None:
    """A run, or None."""
    found = db.execute(select(runs).where(runs.c.id == id)).mappings().first()
    return None if found is None else _row(found, _tags(db, [id]))


def same(db: Connection, fingerprint: str) -> str | None:
    """The newest run of the same contents that did not fail, or None."""
    chosen = select(runs.c.id).where(runs.c.fingerprint == fingerprint, runs.c.state.not_in(_NOT_WORTH_KEEPING)).order_by(runs.c.created_at.desc()).limit(1)
    return db.execute(chosen).scalar()


def listed(db: Connection, search: str, tag: str | None, state: str | None, limit: int, offset: int) -> list[RunRow]:
    """Runs, newest first."""
    chosen = select(runs).where(*_where(search, tag, state)).order_by(runs.c.created_at.desc(), runs.c.id).limit(limit).offset(offset)
    found = db.execute(chosen).mappings().all()
    by_run = _tags(db, [r["id"] for r in found])
    return [_row(r, by_run) for r in found]


def count(db: Connection, search: str, tag: str | None, state: str | None) -> int:
    """How many runs there are of those."""
    return int(db.execute(select(func.count()).select_from(runs).where(*_where(search, tag, state))).scalar_one())


def all_tags(db: Connection) -> list[tuple[str, int]]:
    """Every tag and how many runs have it, the most used first."""
    number = func.count().label("number")
    return [(str(t), int(n)) for t, n in db.execute(select(tags.c.tag, number).group_by(tags.c.tag).order_by(number.desc(), tags.c.tag))]


def stored_bytes(db: Connection, owner: str | None = None) -> int:
    """Bytes that the runs take, of one owner or of all."""
    chosen = select(func.coalesce(func.sum(runs.c.stored_bytes), 0))
    return int(db.execute(chosen if owner is None else chosen.where(runs.c.owner == owner)).scalar_one())


def change(db: Connection, id: str, **values: Any) -> bool:
    """Set columns of a run; whether there is such a run."""
    return db.execute(update(runs).where(runs.c.id == id).values(**values)).rowcount > 0


def set_tags(db: Connection, id: str, wanted: Iterable[str]) -> None:
    """The run has exactly these tags from now on."""
    db.execute(delete(tags).where(tags.c.run_id == id))
    rows = [{"run_id": id, "tag": t} for t in sorted(set(wanted))]
    if rows:
        db.execute(insert(tags), rows)


def remove(db: Connection, id: str) -> bool:
    """Forget a run with its files, tags and job; whether it was there."""
    return db.execute(delete(runs).where(runs.c.id == id)).rowcount > 0


def files_of(db: Connection, id: str) -> list[FileRow]:
    """The files of a run, by their places."""
    rows = db.execute(select(files.c.place, files.c.label, files.c.nbytes, files.c.sha256).where(files.c.run_id == id).order_by(files.c.place))
    return [FileRow(*row) for row in rows]


def ids(db: Connection) -> set[str]:
    """Every run there is."""
    return set(db.execute(select(runs.c.id)).scalars())


def analysis_of(db: Connection, id: str) -> tuple[str, int] | None:
    """(folder, generation) of a run's newest analysis, or None."""
    found = db.execute(select(runs.c.analysis, runs.c.generation).where(runs.c.id == id)).first()
    return None if found is None or found[0] is None else (str(found[0]), int(found[1]))


def shown(db: Connection) -> dict[str, str | None]:
    """The folder of the analysis that is shown, of every run of which nothing is being read."""
    ended = [s for s in State if s.ended]
    return {str(id): folder for id, folder in db.execute(select(runs.c.id, runs.c.analysis).where(runs.c.state.in_(ended)))}


def not_opened_since(db: Connection, before: float) -> list[str]:
    """Runs that ended and that nobody opened since."""
    ended = [s for s in State if s.ended]
    return list(db.execute(select(runs.c.id).where(runs.c.opened_at < before, runs.c.state.in_(ended))).scalars())


def _where(search: str, tag: str | None, state: str | None) -> list[ColumnElement[bool]]:
    """Conditions: every word of the search is in the name or a tag."""
    out: list[ColumnElement[bool]] = []
    tag, state = (None if text is None else _no_nul(text) for text in (tag, state))
    for word in _no_nul(search).split()[:8]:
        tagged = exists().where(tags.c.run_id == runs.c.id, _holds(tags.c.tag, word))
        out.append(or_(_holds(runs.c.name, word), runs.c.id == word.lower(), tagged))
    if tag:
        out.append(exists().where(tags.c.run_id == runs.c.id, tags.c.tag == tag))
    if state:
        out.append(runs.c.state == state)
    return out


def _holds(column: Column[str], word: str) -> ColumnElement[bool]:
    """Whether a text holds a word, in whatever case; a Postgres whose locale knows A to Z only finds other letters as they are written."""
    pattern, as_written = ("%" + "".join(f"\\{c}" if c in "\\%_" else c for c in text) + "%" for text in (word.lower(), word))
    return or_(func.lower(column).like(pattern, escape="\\"), column.like(as_written, escape="\\"))


def _no_nul(text: str) -> str:
    """Postgres takes no NUL; nothing that is stored holds the letter that stands for it here."""
    return text.replace("\0", "\ufffd")


def _tags(db: Connection, of: Sequence[str]) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for id, tag in db.execute(select(tags.c.run_id, tags.c.tag).where(tags.c.run_id.in_(of)).order_by(tags.c.tag)):
        out.setdefault(id, []).append(tag)
    return out


def _row(r: RowMapping, by_run: Mapping[str, Sequence[str]]) -> RunRow:
    plain = {
        k: r[k] for k in ("id", "name", "owner", "nbytes", "stored_bytes", "ranks", "steps", "step_ns", "peak_bytes", "bubble_ratio", "verdict", "headline")
    }
    return RunRow(
        **plain,
        state=State(r["state"]),
        created_at=datetime.fromtimestamp(r["created_at"], UTC),
        tags=tuple(by_run.get(r["id"], ())),
        error=r["error"],
        partial=bool(r["partial"]),
        fingerprint=r["fingerprint"],
        generation=int(r["generation"]),
    )
