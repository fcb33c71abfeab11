"""What can a test do with the fixture ``tracekit``? Record a step, read traces, and hold either to a baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.errors import TracekitError, UsageError
from tracekit.pytest_plugin.options import Options
from tracekit.pytest_plugin.recording import LiveRecording, Recording, listed, recorded
from tracekit.pytest_plugin.told import Finding, Told
from tracekit.pytest_plugin.verdicts import Ending, ending

if TYPE_CHECKING:
    from torch import nn, optim

    from tracekit.baselines import Store
    from tracekit.compare import Rules, Snapshot
    from tracekit.recorder import Recorder

#: A comparison (``tracekit.comparison/1``).
Document = dict[str, Any]
_HOW = "keep this run with --tracekit-update"
_ACCEPT = "--tracekit-update --tracekit-reason TEXT"


class Tracekit:
    """The fixture ``tracekit``.

    Args:
        told: the test's account.
        options: what is set.
        folder: where recordings go.
    """

    def __init__(self, told: Told, options: Options, folder: Path) -> None:
        self._told, self._options, self._folder = told, options, folder
        self._begun = 0

    def record(
        self,
        step: Callable[[], object] | None = None,
        *,
        steps: int = 5,
        warmup: int = 1,
        runs: int = 1,
        model: nn.Module | Iterable[nn.Module] | None = None,
        optimizer: optim.Optimizer | Iterable[optim.Optimizer] | None = None,
        schedule: Any = None,
        config: Mapping[str, Any] | None = None,
        layer_ranges: bool = True,
        with_stack: bool = False,
    ) -> LiveRecording:
        """Record a training step in this process.

        Args:
            step: one training step; it is called ``warmup + steps`` times per run. None: the recording is used in a ``with``.
            steps: training steps to record.
            warmup: steps before those, run and forgotten: the first ones allocate what later ones find.
            runs: how often to record, so that times can be compared; only with ``step``.
            model: the module, or the list of stage modules; names the layers.
            optimizer: the optimizer or optimizers, to tell their memory.
            schedule: of torch.distributed.pipelining, for the actions of a pipeline.
            config: fields of ``run.json`` that the process cannot find out.
            layer_ranges: put ranges around modules.
            with_stack: also record Python stacks.

        Returns:
            The recording. It is complete at the end of the ``with``.

        Raises:
            UsageError: no whole step was recorded.
            TracekitError: the recorder failed.

        Example:
            >>> def test_step(tracekit):  # doctest: +SKIP
            ...     with tracekit.record(model=model, steps=3) as recording:
            ...         for batch in batches:
            ...             train_step(batch)
            ...             recording.step()
        """
        __tracebackhide__ = True
        pytest.importorskip("torch", reason="tracekit.record needs torch: pip install 'tracekit-train[recorder]'")
        from tracekit.recorder import Recorder, Window

        if steps < 1 or warmup < 0 or runs < 1:
            raise UsageError(f"steps={steps}, warmup={warmup}, runs={runs}: at least one step of one run is recorded")
        window = Window(0, warmup, steps, 1)

        def recorder(folder: Path) -> Recorder:
            return Recorder(folder, model, optimizer, config, schedule, window, with_stack, layer_ranges)

        number, folder = self._next()
        if step is None:
            if runs != 1:
                raise UsageError("a with records one run; give the step itself for several: tracekit.record(step, runs=5)")
            return LiveRecording(number, folder, recorder, steps, warmup, self._told.recordings.append)
        made = recorded(number, folder, recorder, step, steps, warmup, runs)
        self._told.recordings.append(made)
        return made

    def analyze(self, *paths: str | Path, workers: int | None = None) -> Recording:
        """Traces that the test made itself, such as the run directory of several processes.

        Args:
            paths: one per run: a run directory, trace, report or snapshot, or a folder of several runs.
            workers: processes to read with; None picks by the size of the input.

        Raises:
            InputError: a path is missing, no trace, or damaged.
        """
        __tracebackhide__ = True
        number, folder = self._next()
        made = Recording(number, [Path(p) for p in paths], folder, workers)
        try:
            if not made.snapshots:
                raise UsageError("name at least one run: tracekit.analyze(path)")
        except TracekitError as e:
            raise e.with_traceback(None) from None
        self._told.recordings.append(made)
        return made

    def assert_no_regression(
        self,
        recording: Recording | Sequence[Recording],
        *,
        scenario: str | None = None,
        baseline: str | Path | None = None,
        ignore: Iterable[str] = (),
        allow_incomparable: bool = False,
    ) -> Document | None:
        """Hold a recording to the rolling baseline of its scenario and setup.

        Facts of the program are compared exactly: one run is enough. Times are compared over runs. With ``--tracekit-update``
        the recording is kept as baseline in place of compared.

        Args:
            recording: of the step; several are several runs of it.
            scenario: what it is a run of; the test's own id where None.
            baseline: the store, where it is another than the project's; a folder is relative to pytest's root.
            ignore: names of the setup that may differ, such as ``torch``.
            allow_incomparable: compare although the setups differ.

        Returns:
            The comparison (``tracekit.comparison/1``), as ``tracekit check --json`` writes it; its verdict is None where there is nothing
            to compare with and that passes. None where the recording was kept.

        Raises:
            AssertionError: it regressed; the message is the comparison. It also says what cannot be told, where the settings
                want a failure of that.
            pytest.skip.Exception: there is no baseline, or it cannot be told, and no setting says how that ends.
            UsageError: a setting makes no sense, or two recordings of the test are of one scenario.
        """
        __tracebackhide__ = True
        try:
            head = [s for one in listed(recording) for s in one.snapshots]
            name, store = self._scenario(scenario), self._options.store(baseline)
            made = self._compared(store, name, head, self._rules(ignore, allow_incomparable))
            if self._options.update:
                self._keep(store, name, head, made)
                return None
            found = ending(made, self._options.settings.inconclusive, self._options.missing_baseline)
        except TracekitError as e:
            raise e.with_traceback(None) from None
        said = f"{made['sentence']} ({found.note})" if found.note else str(made["sentence"])
        if found.finding is Finding.NO_BASELINE:
            said = f"{said}; {_HOW}" + ("" if store else ", and name the store: --tracekit-baseline FOLDER")
        self._told.findings.append((found.finding, said))
        if found.ending is Ending.FAIL:
            raise AssertionError(said if made["verdict"] is None else f"{_text(made)}\nIf this is meant, make it the new normal: {_ACCEPT}")
        if found.ending is Ending.SKIP:
            pytest.skip(said if made["verdict"] is None else f"{made['verdict']}: {said}")
        return made

    def _next(self) -> tuple[int, Path]:
        """Number and folder of the next recording."""
        self._begun += 1
        return self._begun, self._folder / str(self._begun)

    def _scenario(self, given: str | None) -> str:
        name = given if given is not None else self._told.scenario
        if not name.strip():
            raise UsageError("a scenario is a name")
        if name in self._told.scenarios:
            raise UsageError(
                f"two recordings of one test are compared as {name!r}: give each its own, scenario='…', or both in one list if they are runs of one step"
            )
        self._told.scenarios.add(name)
        return name

    def _rules(self, ignore: Iterable[str], allow: bool) -> Rules:
        rules = self._options.settings.rules
        return replace(rules, ignore=(*rules.ignore, *ignore), allow_incomparable=allow or rules.allow_incomparable)

    def _compared(self, store: Store | None, name: str, head: Sequence[Snapshot], rules: Rules) -> Document:
        """The comparison with the baseline, kept for ``--tracekit-report``; its verdict is None where there is no baseline."""
        from tracekit.baselines.rolling import rolling
        from tracekit.compare import compare, without_baseline
        from tracekit.thresholds import Verdict, exit_code

        found, lost = self._options.settings, list[str]()
        history = [] if store is None else rolling(store, name, head[0], rules, found.values["window"], lost.append)
        base = [run for _, runs in history for run in runs]
        made = compare(base, head, rules, history=history, scenario=name).to_dict() if base else without_baseline(head, rules, name)
        made["notes"] = [*made["notes"], *(f"{line}." for line in lost)]
        if made["verdict"] is not None:
            made["exit_code"] = exit_code(Verdict(made["verdict"]), found.inconclusive)
        self._told.documents.append(made)
        return made

    def _keep(self, store: Store | None, name: str, head: Sequence[Snapshot], made: Document) -> None:
        """Keep the runs; those that regressed only with a reason, or the baseline would come to hold both levels and see neither."""
        __tracebackhide__ = True
        from tracekit.baselines.commits import commit_of
        from tracekit.wording import clean

        if store is None:
            raise UsageError("--tracekit-update keeps runs in a baseline store, and none is named: --tracekit-baseline FOLDER")
        reason = self._options.reason
        if made["verdict"] == Finding.REGRESSED.value and reason is None:
            self._told.findings.append((Finding.REGRESSED, f"not kept: {made['sentence']}"))
            raise AssertionError(f"not kept as baseline, for it regressed; if that is meant, say why: {_ACCEPT}\n\n{_text(made)}")
        commit = clean(commit_of(head, self._options.config.rootpath))
        store.add(head, name, commit, reason=None if reason is None else clean(reason, 2000))
        as_scenario = "" if name == self._told.scenario else f"as {name} "
        self._told.findings.append((Finding.KEPT, f"{as_scenario}in {store.files}" + ("" if reason is None else f": {clean(reason)}")))


def _text(made: Document) -> str:
    from tracekit.report import regression

    return regression.text(made)
