"""Who sees to it that queued runs are read? A thread in the server that takes jobs from the queue, and one more per job that watches its child."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from dashboard.jobs import servers
from dashboard.jobs.job import Job
from dashboard.library import Library
from dashboard.store import queue

log = logging.getLogger(__name__)

_LOOK_S = 1.0
_TIDY_S = 600.0
_END_S = 10.0


class Supervisor:
    """Reads queued runs for as long as it is started; several, in several servers, may work on one database.

    Args:
        library: whose runs.
        stored: is told of each run whose ranks are all analysed, once that is stored; it must return at once.
    """

    def __init__(self, library: Library, stored: Callable[[str], object] | None = None) -> None:
        self.library = library
        self._stored = stored
        self._server = servers.own()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._jobs: dict[str, tuple[Job, threading.Thread]] = {}

    def start(self) -> None:
        """Begin. What a server that is gone has left is taken up first."""
        self._ending.clear()
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End: children are killed, and their jobs go back into the queue."""
        self._ending.set()
        self.library.queued.set()
        if self._thread is not None:
            self._thread.join(_END_S)

    def _run(self) -> None:
        tidy_at = 0.0
        while not self._ending.is_set():
            try:
                self._take()
                if time.monotonic() >= tidy_at:
                    tidy_at = time.monotonic() + _TIDY_S
                    self.library.tidy()
            except Exception:  # nothing may end this thread while the server lives: the log says what it was, and the next look comes
                log.exception("the queue cannot be looked at; the next look comes in a moment")
            self.library.queued.wait(_LOOK_S)
            self.library.queued.clear()
        for job, _ in self._jobs.values():
            job.release()
        for _, thread in self._jobs.values():
            thread.join(_END_S)

    def _take(self) -> None:
        """Reclaim what was left behind, and begin as many jobs as there is room for."""
        self._jobs = {worker: (job, thread) for worker, (job, thread) in self._jobs.items() if thread.is_alive()}
        db = self.library.db
        with db.read() as connection:
            leases = queue.leases(connection)
            waiting = queue.waiting(connection)
            late = queue.overdue(connection, self.library.clock(), self._jobs)
        dead = [worker for _, worker in leases if servers.is_dead(worker, self._server) or (servers.is_own(worker, self._server) and worker not in self._jobs)]
        if dead or late:
            with db.write() as connection:
                waiting += queue.reclaim(connection, self.library.clock(), dead, self._jobs)
        while waiting and len(self._jobs) < self.library.settings.workers and not self._ending.is_set():
            worker = servers.worker(self._server)
            with db.write() as connection:
                run = queue.claim(connection, worker, self.library.clock())
            if run is None:
                return
            job = Job(self.library, run, worker, self._stored)
            thread = threading.Thread(target=job.work, name=f"job {run}", daemon=True)
            self._jobs[worker] = (job, thread)
            thread.start()
