"""How is one job seen through? Its child is started and heard, its lease renewed, its limits kept, and how it ends is written down."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from dashboard.jobs.children import Child
from dashboard.jobs.messages import Analysed, Done, Failed, News, Order, Progress
from dashboard.library import Library
from dashboard.store import queue
from dashboard.store.folders import no_room, remove_scratch
from dashboard.store.rows import State
from tracekit.wording import clean, duration

log = logging.getLogger(__name__)

#: How often a lease is renewed and its cancellation noticed, and progress written down at most.
_RENEW_S = 0.5
_HEAR_S = 0.25
_FOLDER = re.compile(r"[0-9a-f]{32}-(full|\d{1,6})")
_LESS = "upload fewer ranks or shorter windows"
_KILLED = "the process that read it was killed, most likely for want of memory"


class Job:
    """One attempt to read a run.

    Args:
        library: where it is stored.
        run: its id.
        worker: the lease.
        stored: is told of the run when all of its ranks are analysed and stored.
    """

    def __init__(self, library: Library, run: str, worker: str, stored: Callable[[str], object] | None = None) -> None:
        self.library, self.run, self.worker = library, run, worker
        self._stored = stored
        self._released = threading.Event()
        self._progress = Progress("reading", "")
        self._renewed = 0.0
        self._over: Done | Failed | None = None

    def release(self) -> None:
        """Stop, and put the job back into the queue: the server ends."""
        self._released.set()

    def work(self) -> None:
        """See it through."""
        try:
            self._work()
        except Exception:
            # the lease runs out, and the job is taken up again by whoever reaches the database then
            log.exception("the job of run %s was lost", self.run)
        finally:
            self.library.queued.set()

    def _work(self) -> None:
        settings = self.library.settings
        order = Order(
            folder=str(self.library.folder(self.run)),
            attempt=uuid4().hex,
            readers=settings.readers,
            memory_bytes=settings.job_memory_bytes,
            seconds=settings.job_seconds,
            min_free_bytes=settings.min_free_bytes,
            reading=settings.reading,
        )
        until = None if settings.job_seconds is None else time.monotonic() + settings.job_seconds
        child = Child(order)
        try:
            while self._over is None and not child.ended:
                if self._released.is_set():
                    self._write(queue.release)
                    return
                if not self._renew():
                    self._write(queue.let_go)
                    return
                if until is not None and time.monotonic() > until:
                    allowed = _spoken(settings.job_seconds)
                    says = f"took longer than the {allowed} that reading may take{self._last()}"
                    self._over = Failed(f"{says}; {_LESS}, or start tracekit serve with a larger --job-seconds")
                    break
                if full := no_room(Path(order.folder), settings.min_free_bytes):
                    self._over = Failed(full)
                    break
                for one in child.heard(_HEAR_S):
                    self._hear(one)
        except ValueError as error:
            log.error("the child of run %s: %s", self.run, error)
            self._over = Failed("the process that read it went wrong; these files are not to be trusted")
        finally:
            child.kill()
            status, words = child.last_words()
            child.close()
            remove_scratch(Path(order.folder), order.attempt)
        if words:
            log.warning("while run %s was read: %s", self.run, words)
        self._renew(at_once=True)  # how far it came is what its page says from now on
        if isinstance(self._over, Done):
            self._write(queue.end, State.READY)
        else:
            says = self._over.error if self._over is not None else self._ended(status)
            self._write(queue.end, State.FAILED, clean(says, 1000))

    def _hear(self, one: News) -> None:
        if isinstance(one, Progress):
            changed = one.stage != self._progress.stage
            self._progress = one
            if changed:
                self._renewed = 0.0
        elif isinstance(one, Analysed):
            if _FOLDER.fullmatch(one.folder) is None:
                raise ValueError(f"it names the folder {one.folder[:60]!r}")
            with self.library.db.write() as db:
                queue.publish(db, self.run, self.worker, one.folder, one.summary, one.partial, one.stored_bytes)
            if self._stored is not None and not one.partial:
                self._stored(self.run)
        else:
            self._over = one

    def _renew(self, at_once: bool = False) -> bool:
        """Whether the job is still this one's; how far it is is written down every now and then, or at once."""
        now = time.monotonic()
        if now - self._renewed < _RENEW_S and not at_once:
            return True
        self._renewed = now
        p = self._progress
        stage = State.ANALYSING if p.stage == State.ANALYSING else State.READING
        with self.library.db.write() as db:
            return queue.renew(
                db,
                self.run,
                self.worker,
                self.library.clock(),
                stage=stage,
                message=clean(p.message, 300),
                done=p.done,
                total=p.total,
                events=p.events,
                events_per_s=p.events_per_s,
                seconds_left=p.seconds_left,
                ranks_read=p.ranks_read,
                share=p.share,
            )

    def _ended(self, status: int | None) -> str:
        """Why a child that said nothing has ended."""
        if status is None or status in (-9, -24):
            return f"{_KILLED}{self._last()}; {_LESS}, or give the server more"
        return f"the process that read it ended without a word (exit {status}){self._last()}; the server's log may say why"

    def _last(self) -> str:
        """What it did last, and to which file."""
        return f" (the last heard of it: {clean(self._progress.message, 200)})" if self._progress.message else ""

    def _write(self, how: queue.Ending, *arguments: object) -> None:
        with self.library.db.write() as db:
            how(db, self.run, self.worker, *arguments)


def _spoken(seconds: float | None) -> str:
    return duration((seconds or 0) * 1e9)
