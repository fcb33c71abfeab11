"""What did a test record? One or several runs of a step, with their analysis, report and snapshot, made when they are asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tracekit.errors import TracekitError, UsageError

if TYPE_CHECKING:
    from tracekit.analysis import Analysis
    from tracekit.compare import Snapshot
    from tracekit.recorder import Recorder


class Recording:
    """Runs of one step.

    Args:
        number: of the recording in its test, from 1.
        paths: run directories, traces, reports or snapshots: one per run, or a folder of several.
        folder: where ``report.json`` goes.
        workers: processes to read with; None picks by the size of the input.
    """

    def __init__(self, number: int, paths: Sequence[Path], folder: Path, workers: int | None = None) -> None:
        self.number = number
        self.paths = tuple(paths)
        self.folder = folder
        self._workers = workers

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return len(self.snapshots)

    @property
    def analysis(self) -> Analysis:
        """The analysis of the first run, as ``tracekit.analyze`` gives it.

        Raises:
            InputError: the traces cannot be read.
            UsageError: a report or snapshot was given, of which no analysis is left.
        """
        if not self._read.analyses:
            raise UsageError("this recording comes from a report or snapshot, which holds no analysis; give its traces")
        return self._read.analyses[0]

    @property
    def report(self) -> dict[str, Any]:
        """The report document of the first run, the same as ``tracekit analyze --json`` writes; also in ``folder/report.json``."""
        if not self._read.reports:
            raise UsageError("this recording comes from a snapshot, which holds no report; give its traces or its report")
        return self._read.reports[0]

    @property
    def reports(self) -> list[dict[str, Any]]:
        """The report documents of all runs; those of snapshots are not known."""
        return list(self._read.reports)

    @property
    def snapshots(self) -> list[Snapshot]:
        """The runs, reduced to what is compared."""
        return list(self._read.snapshots)

    @cached_property
    def _read(self) -> _Read:
        from tracekit.pytest_plugin.options import write_document

        made = _Read()
        for path in self.paths:
            made.read(path, self._workers)
        for number, report in enumerate(made.reports, 1):
            write_document(self.folder / ("report.json" if number == 1 else f"report-{number}.json"), report)
        return made


class _Read:
    """What the runs' files hold."""

    def __init__(self) -> None:
        self.analyses: list[Analysis] = []
        self.reports: list[dict[str, Any]] = []
        self.snapshots: list[Snapshot] = []

    def read(self, path: Path, workers: int | None) -> None:
        from tracekit.analysis import analyze
        from tracekit.compare.inputs import document_of, read_runs
        from tracekit.compare.snapshot import REPORT_SCHEMA_PREFIX

        def analyse(run: Path) -> dict[str, Any]:
            analysis = analyze(run, workers=workers)
            self.analyses.append(analysis)
            self.reports.append(analysis.to_dict())
            return self.reports[-1]

        self.snapshots += read_runs([path], analyse)
        # in the order of the snapshots: a folder's reports come after the runs that were analysed
        files = [path] if path.is_file() else sorted(path.glob("[!.]*.json")) if not (path / "run.json").exists() else []
        documents = [document_of(file) for file in files if file.is_file()]
        self.reports += [d for d in documents if d is not None and str(d["schema"]).startswith(REPORT_SCHEMA_PREFIX)]


class LiveRecording(Recording):
    """A recording that a ``with`` makes, in this process: enter it, train, and call :meth:`step` after every training step.

    Args:
        number: of the recording in its test, from 1.
        folder: the run directory is made in it.
        recorder: makes the recorder of a run directory.
        steps: training steps to record.
        warmup: training steps before those, run and forgotten.
        done: takes the recording when it is complete.
    """

    def __init__(self, number: int, folder: Path, recorder: Callable[[Path], Recorder], steps: int, warmup: int, done: Callable[[Recording], None]) -> None:
        super().__init__(number, [folder / "run"], folder, workers=1)
        self._make, self._done = recorder, done
        self._steps, self._warmup, self._ended = steps, warmup, 0
        self._recorder: Recorder | None = None
        self._said = _Said()

    def __enter__(self) -> LiveRecording:
        if self._recorder is not None:
            raise UsageError("a recording is entered once; call tracekit.record again")
        logging.getLogger("tracekit.recorder").addHandler(self._said)
        self._recorder = self._make(self.paths[0])
        self._recorder.__enter__()
        return self

    def step(self, **values: float) -> None:
        """End a training step; ``values`` are kept beside its times."""
        if self._recorder is None:
            raise UsageError("step ends a training step of an entered recording: with tracekit.record() as recording")
        self._ended += 1
        self._recorder.step(**values)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        __tracebackhide__ = True
        recorder = self._recorder
        if recorder is None:
            return
        recorder.__exit__(kind, error, trace)
        logging.getLogger("tracekit.recorder").removeHandler(self._said)
        if error is not None:
            return
        if recorder.failed:
            raise TracekitError(f"the recording failed: {'; '.join(self._said.lines) or 'no reason was given'}")
        if self._ended <= self._warmup:
            raise UsageError(
                f"no whole step was recorded: {self._ended} ended, {self._warmup} of them for warm-up; "
                f"run {self._warmup + self._steps} and call recording.step() after each"
            )
        self._done(self)


class _Said(logging.Handler):
    """What the recorder says."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def recorded(number: int, folder: Path, recorder: Callable[[Path], Recorder], step: Callable[[], object], steps: int, warmup: int, runs: int) -> LiveRecording:
    """Run a training step again and again, and record it.

    Args:
        number: of the recording in its test, from 1.
        folder: the run directories are made in it.
        recorder: makes the recorder of a run directory.
        step: one training step.
        steps: to record of each run.
        warmup: steps before those.
        runs: how many recordings.

    Returns:
        One recording of all runs.
    """
    __tracebackhide__ = True
    finished: list[Recording] = []
    for run in range(1, runs + 1):
        with LiveRecording(number, folder / f"run{run}", recorder, steps, warmup, finished.append) as live:
            for _ in range(warmup + steps):
                step()
                live.step()
    live.paths, live.folder = tuple(path for one in finished for path in one.paths), folder
    return live


def listed(recordings: object) -> list[Recording]:
    """Recordings as a list.

    Raises:
        UsageError: there is none.
    """
    every = [recordings] if isinstance(recordings, Recording) else list(recordings) if isinstance(recordings, (list, tuple)) else []
    if not every or not all(isinstance(r, Recording) for r in every):
        raise UsageError("give what tracekit.record or tracekit.analyze returned, or a list of them")
    return every
