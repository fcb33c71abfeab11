"""What can a reference run be asked to do? One frozen dataclass, and the reasons why some requests are refused.

Standard library only: the command line checks a request before torch is imported.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

from tracekit.errors import UsageError


class Schedule(NamedTuple):
    """A pipeline schedule that can be asked for.

    Attributes:
        cls: class in torch.distributed.pipelining.
        virtual: stages per rank unless said otherwise.
        splits_backward: runs input and weight gradients as separate actions.
        v_shaped: rank r holds stages r and 2p - 1 - r, always two.
        reported: its name in run.json.
    """

    cls: str
    virtual: int
    splits_backward: bool
    v_shaped: bool
    reported: str


SCHEDULES: dict[str, Schedule] = {
    "gpipe": Schedule("ScheduleGPipe", 1, False, False, "gpipe"),
    "1f1b": Schedule("Schedule1F1B", 1, False, False, "1f1b"),
    "interleaved": Schedule("ScheduleInterleaved1F1B", 2, False, False, "interleaved_1f1b"),
    "interleaved-zb": Schedule("ScheduleInterleavedZeroBubble", 2, True, False, "interleaved_zb"),
    "zbv": Schedule("ScheduleZBVZeroBubble", 2, True, True, "zbv"),
    "dualpipev": Schedule("ScheduleDualPipeV", 2, True, True, "dualpipev"),
}

#: What each recipe splits, in one line.
RECIPES: dict[str, str] = {
    "dense": "nothing: one process",
    "ddp": "the batch; gradients are all-reduced (DistributedDataParallel)",
    "fsdp": "the batch, and parameters, gradients and optimizer state (fully_shard)",
    "tp": "every layer's matrices (column then row split, attention by heads)",
    "tp-sp": "as tp, and norm, dropout and residual along the sequence (Megatron sequence parallelism)",
    "cp": "the sequence; keys and values are gathered around attention (context parallelism)",
    "pp": "the layers into pipeline stages, under a schedule",
    "3d": "data x pipeline x tensor",
}

RECOMPUTE = ("none", "full", "selective:core_attention", "selective:op", "sqrt")
#: Different characters in the text of ``data``.
CHARACTERS = 24
DTYPE_BYTES = {"float32": 4, "float64": 8, "bfloat16": 2}


@dataclass(frozen=True)
class RunConfig:
    """One reference run. Build it with :func:`configure`, which fills in what a recipe wants by default.

    Attributes:
        recipe: one of RECIPES.
        ranks: processes.
        pp, dp, cp, tp: degrees of pipeline, data, context and tensor parallelism; their product is ``ranks``.
        data: ``ddp`` or ``fsdp``, how the data axis keeps its replicas equal.
        sequence_parallel: Megatron sequence parallelism on the tensor axis.
        schedule: one of SCHEDULES, where pp > 1.
        virtual: pipeline stages per rank.
        recompute: one of RECOMPUTE.
        microbatch_size: sequences per microbatch and data-parallel rank.
        microbatches: microbatches per step and data-parallel rank.
        emulate_compute_ns: forward time of one rank's layers for one microbatch, slept instead of computed; None: off.
        wait, warmup, active: the profiler window, in steps.
        record: run under the recorder; off for pure training.
        layer_ranges: record ranges that name layers; off to see what a trace tells without them.
        save_parameters: write the whole, gathered parameters to ``parameters.pt`` at the end.
        out: the run directory.
        command: the command that asked for the run, for run.json.
        fail_at: ``(rank, step)`` at which a rank raises, to try how a run ends; None: never.
    """

    recipe: str
    ranks: int
    out: str
    layers: int = 4
    hidden: int = 128
    heads: int = 4
    sequence: int = 64
    vocabulary: int = 64
    mlp_ratio: int = 4
    dropout: float = 0.0
    dtype: str = "float32"
    microbatch_size: int = 4
    microbatches: int = 2
    steps: int = 10
    learning_rate: float = 3e-3
    seed: int = 0
    device: str = "cpu"
    pp: int = 1
    dp: int = 1
    cp: int = 1
    tp: int = 1
    data: str = "ddp"
    sequence_parallel: bool = False
    schedule: str | None = None
    virtual: int = 1
    recompute: str = "none"
    emulate_compute_ns: int | None = None
    wait: int = 1
    warmup: int = 1
    active: int = 3
    record: bool = True
    layer_ranges: bool = True
    save_parameters: bool = False
    command: str | None = None
    fail_at: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        for reason in refusals(self):
            raise UsageError(reason)

    @property
    def stages(self) -> int:
        """Pipeline stages, virtual ones counted."""
        return self.pp * self.virtual

    @property
    def backend(self) -> str:
        """Process group backend of the device."""
        return "nccl" if self.device == "cuda" else "gloo"

    @property
    def mesh(self) -> dict[str, int]:
        """Degree of every mesh axis, in rank order: the last axis varies fastest."""
        shard = self.data == "fsdp"
        return {"pp": self.pp, "dp_replicate": 1 if shard else self.dp, "dp_shard": self.dp if shard else 1, "cp": self.cp, "tp": self.tp}

    def stage_layers(self, stage: int) -> range:
        """Global numbers of the layers in a stage."""
        size = self.layers // self.stages
        return range(stage * size, (stage + 1) * size)

    def rank_stages(self, pp_rank: int) -> tuple[int, ...]:
        """Stages that a pipeline rank holds, in order."""
        if self.schedule and SCHEDULES[self.schedule].v_shaped:
            return (pp_rank, self.stages - 1 - pp_rank)
        return tuple(pp_rank + loop * self.pp for loop in range(self.virtual))


def configure(recipe: str, ranks: int | None = None, *, out: str, **given: Any) -> RunConfig:
    """A run's configuration: what is given, and a recipe's defaults for the rest.

    Args:
        recipe: one of RECIPES.
        ranks: processes; a recipe's smallest sensible number where None.
        out: the run directory.
        given: fields of RunConfig; None means "the default".

    Raises:
        UsageError: the request is impossible; the message says why.

    >>> configure("tp", 2, out="runs/tp").mesh["tp"]
    2
    """
    if recipe not in RECIPES:
        raise UsageError(f"no recipe {recipe!r}; there are {', '.join(RECIPES)}")
    known = {field.name for field in dataclasses.fields(RunConfig)}
    if unknown := sorted(set(given) - known):
        raise UsageError(f"no setting {unknown[0]!r}")
    fields: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    ranks = {"dense": 1, "3d": 8, "pp": 4}.get(recipe, 2) if ranks is None else ranks
    fields |= _degrees(recipe, ranks, fields)
    if fields.get("emulate_compute_ns") is not None:
        # The time is slept, so the tensors only have to exist.
        for name, value in {"hidden": 32, "sequence": 16, "microbatch_size": 1, "steps": 5}.items():
            fields.setdefault(name, value)
    if fields.get("pp", 1) > 1:
        fields.setdefault("schedule", "1f1b")
        schedule = SCHEDULES.get(fields["schedule"])
        fields.setdefault("virtual", schedule.virtual if schedule else 1)
        fields.setdefault("microbatches", 8)
        fields.setdefault("microbatch_size", 2)
        # Two layers a rank, so that schedules with one and with two stages a rank train the same model.
        fields.setdefault("layers", max(4, fields["pp"] * max(2, fields["virtual"])))
    fields.setdefault("sequence_parallel", recipe == "tp-sp")
    return RunConfig(recipe=recipe, ranks=ranks, out=out, **fields)


def _degrees(recipe: str, ranks: int, given: dict[str, Any]) -> dict[str, Any]:
    """Degrees of the mesh axes that a recipe wants over these ranks."""
    axis = {"ddp": "dp", "fsdp": "dp", "tp": "tp", "tp-sp": "tp", "cp": "cp", "pp": "pp"}.get(recipe)
    if recipe == "3d":
        tp, pp = given.get("tp", 2), given.get("pp", 2)
        return {"tp": tp, "pp": pp, "dp": given.get("dp", max(1, ranks // (tp * pp)))}
    degrees: dict[str, Any] = {axis: given.get(axis, ranks)} if axis else {}
    if recipe in ("ddp", "fsdp"):
        degrees["data"] = recipe
    return degrees


def refusals(config: RunConfig) -> list[str]:
    """Why a run is impossible, one line per reason; empty where it is possible.

    Reasons of the first check that has any: the later ones take its subject for granted.
    """
    checks = (_sizes, _mesh, _split, _pipeline, _recompute, _device)
    return next((reasons for check in checks if (reasons := check(config))), [])


def _sizes(c: RunConfig) -> list[str]:
    names = ("ranks", "layers", "hidden", "heads", "sequence", "vocabulary", "mlp_ratio", "microbatch_size", "microbatches", "steps")
    reasons = [f"{name} must be at least 1" for name in (*names, "pp", "dp", "cp", "tp", "virtual") if getattr(c, name) < 1]
    if reasons:
        return reasons
    if c.recipe not in RECIPES:
        reasons.append(f"no recipe {c.recipe!r}; there are {', '.join(RECIPES)}")
    if c.hidden % c.heads:
        reasons.append(f"hidden {c.hidden} does not divide into {c.heads} heads")
    if c.vocabulary < CHARACTERS:
        reasons.append(f"vocabulary {c.vocabulary} is too small: the text has {CHARACTERS} different characters")
    if not 0.0 <= c.dropout < 1.0:
        reasons.append(f"dropout {c.dropout} is not in [0, 1)")
    if c.dtype not in DTYPE_BYTES:
        reasons.append(f"no dtype {c.dtype!r}; there are {', '.join(DTYPE_BYTES)}")
    if c.record and (c.active < 1 or min(c.wait, c.warmup) < 0):
        reasons.append("the profiler window needs at least one active step and no negative one")
    elif c.record and c.wait + c.warmup + c.active > c.steps:
        reasons.append(f"{c.steps} steps end before the profiler window of {c.wait} + {c.warmup} + {c.active} steps does; ask for more steps")
    return reasons


def _mesh(c: RunConfig) -> list[str]:
    if c.data not in ("ddp", "fsdp"):
        return [f"no data parallelism {c.data!r}; there are ddp, fsdp"]
    if c.recipe == "dense" and c.ranks > 1:
        return ["dense is one process; use ddp, fsdp, tp, tp-sp, cp, pp or 3d for more ranks"]
    if c.recipe not in ("dense", "3d") and c.ranks < 2:
        return [f"{c.recipe} needs at least 2 ranks"]
    if c.recipe == "3d" and min(c.pp, c.dp, c.tp) < 2:
        return ["3d needs at least 2 ranks on each of pp, dp and tp: 8 ranks or more"]
    if c.pp * c.dp * c.cp * c.tp != c.ranks:
        return [f"pp {c.pp} x dp {c.dp} x cp {c.cp} x tp {c.tp} is {c.pp * c.dp * c.cp * c.tp} ranks, not {c.ranks}"]
    return []


def _split(c: RunConfig) -> list[str]:
    reasons = []
    if c.sequence_parallel and c.tp == 1:
        reasons.append("sequence parallelism works on the tensor axis: it needs tp of at least 2")
    if c.recipe == "tp-sp" and not c.sequence_parallel:
        reasons.append("tp-sp is sequence parallel; use tp to do without")
    if c.heads % c.tp:
        reasons.append(f"{c.heads} heads do not divide over tp {c.tp}")
    if c.vocabulary % c.tp:
        reasons.append(f"vocabulary {c.vocabulary} does not divide over tp {c.tp}")
    if c.sequence_parallel and c.sequence % c.tp:
        reasons.append(f"sequence {c.sequence} does not divide over tp {c.tp}, which sequence parallelism needs")
    if c.sequence % c.cp:
        reasons.append(f"sequence {c.sequence} does not divide over cp {c.cp}")
    return reasons


def _pipeline(c: RunConfig) -> list[str]:
    if c.pp == 1:
        return ["a schedule needs the pp or 3d recipe"] if c.schedule or c.virtual > 1 else []
    if c.schedule not in SCHEDULES:
        return [f"no schedule {c.schedule!r}; there are {', '.join(SCHEDULES)}"]
    schedule, reasons = SCHEDULES[c.schedule], []
    if schedule.v_shaped and c.virtual != 2:
        reasons.append(f"{c.schedule} needs exactly 2 stages per rank, not {c.virtual}")
    if schedule.virtual == 1 and c.virtual != 1:
        reasons.append(f"{c.schedule} has one stage per rank; use interleaved for {c.virtual}")
    if c.schedule == "interleaved" and c.virtual == 1:
        reasons.append("interleaved needs at least 2 stages per rank; use 1f1b for one")
    if c.layers % c.stages:
        reasons.append(f"{c.layers} layers do not divide into {c.stages} stages ({c.pp} ranks x {c.virtual} per rank)")
    if c.schedule in ("interleaved", "interleaved-zb") and c.microbatches % max(1, c.microbatches // c.pp):
        reasons.append(f"{c.schedule} runs in rounds of {c.pp} microbatches; {c.microbatches} do not divide into equal rounds")
    if c.schedule in ("1f1b", "dualpipev") and c.microbatches < c.stages:
        reasons.append(f"{c.schedule} needs at least as many microbatches as stages: {c.stages}, not {c.microbatches}")
    if c.recipe == "3d" and c.data == "ddp" and schedule.splits_backward:
        reasons.append(f"{c.schedule} splits the backward pass, which the gradient hooks of ddp cannot follow; use data fsdp")
    return reasons


def _recompute(c: RunConfig) -> list[str]:
    if c.recompute not in RECOMPUTE:
        return [f"no recomputation {c.recompute!r}; there are {', '.join(RECOMPUTE)}"]
    splits = c.schedule in SCHEDULES and SCHEDULES[c.schedule].splits_backward
    if splits and c.recompute == "selective:op":
        return [f"{c.schedule} runs backward in two parts, and selective:op may run each region backward only once; use selective:core_attention"]
    if splits and c.recompute in ("full", "sqrt"):
        return [f"{c.schedule} runs backward in two parts, and {c.recompute} would repeat the layers in each; use selective:core_attention"]
    return []


def _device(c: RunConfig) -> list[str]:
    if c.device not in ("cpu", "cuda"):
        return [f"no device {c.device!r}; there are cpu, cuda"]
    if c.emulate_compute_ns is not None and c.device != "cpu":
        return ["emulated compute sleeps on the processor: it needs device cpu"]
    if c.emulate_compute_ns is not None and (c.cp > 1 or c.recompute == "selective:core_attention"):
        return [f"emulated layers have no attention core, which {'cp' if c.cp > 1 else c.recompute} is about"]
    if c.emulate_compute_ns is not None and c.emulate_compute_ns <= 0:
        return ["emulated compute must last longer than 0"]
    return []


def run_fields(config: RunConfig, parameters: int) -> dict[str, Any]:
    """What run.json says of a run.

    Args:
        config: the run.
        parameters: elements in the whole model's parameters.
    """
    c = config
    reported = SCHEDULES[c.schedule].reported if c.schedule else None
    if (reported, c.virtual) == ("interleaved_zb", 1):
        reported = "zb_h1"  # with one stage per rank it is the schedule that the Zero Bubble paper calls ZB-H1
    return {
        "recipe": c.recipe,
        "command": c.command,
        "device": c.device,
        "backend": c.backend,
        "world_size": c.ranks,
        "mesh": c.mesh,
        "model": {
            "layers": c.layers,
            "hidden": c.hidden,
            "heads": c.heads,
            "sequence": c.sequence,
            "vocabulary": c.vocabulary,
            "mlp_ratio": c.mlp_ratio,
            "dropout": c.dropout,
            "dtype": c.dtype,
            "dtype_bytes": DTYPE_BYTES[c.dtype],
            "attention": "math",
            "parameters": parameters,
        },
        "training": {
            "microbatch_size": c.microbatch_size,
            "microbatches": c.microbatches,
            "steps": c.steps,
            "optimizer": "AdamW",
            "learning_rate": c.learning_rate,
            "seed": c.seed,
            "sequence_parallel": c.sequence_parallel,
        },
        "pipeline": None if c.pp == 1 else {"schedule": reported, "stages": c.stages, "virtual": c.virtual},
        "recompute": c.recompute,
        "emulate_compute_ns": c.emulate_compute_ns,
    }
