"""Do the ranges and frames of other frameworks name a pipeline's actions?"""

from __future__ import annotations

import pytest

from tests.pipeline.test_virtual_stages import Naming, drawn, passed, read
from tracekit.facts.actions import actions
from tracekit.schedule.orders import order
from tracekit.vocabulary import NamedAction, parse_named_action

WORDS = {"F": "forward", "B": "backward", "I": "backward"}
UNNUMBERED: dict[str, Naming] = {
    "Megatron-LM timers": lambda a: [f"{WORDS[a.action]}-compute"],
    "Megatron-LM frames, one inside the other": lambda a: [
        f"megatron/core/pipeline_parallel/schedules.py(280): {WORDS[a.action]}_step",
        f"pretrain_gpt.py(190): {WORDS[a.action]}_step",
    ],
    "DeepSpeed": lambda a: [f"PipelineEngine._exec_{WORDS[a.action]}_pass"],
    "DeepSpeed instructions": lambda a: [f"{WORDS[a.action].title()}Pass(buffer_id={a.microbatch % 2})"],
    "nanotron frames": lambda a: [f"nanotron/parallel/pipeline_parallel/engine.py(32): {WORDS[a.action]}"],
}
NUMBERED: dict[str, Naming] = {
    "letters": lambda a: [f"{a.action}{a.microbatch}"],
    "zero bubble": lambda a: [f"{a.action}{a.microbatch}.0.0"],
    "short words": lambda a: [f"{WORDS[a.action][0]}wd_mb{a.microbatch}"],
    "words": lambda a: [f"{WORDS[a.action]} microbatch {a.microbatch}"],
    "steps inside timers": lambda a: [f"{WORDS[a.action]}-compute", f"{WORDS[a.action]}_step_{a.microbatch}"],
}


@pytest.mark.parametrize("who", UNNUMBERED)
@pytest.mark.parametrize("sequence", [True, False])
def test_microbatches_are_counted_where_no_range_names_them(who: str, sequence: bool) -> None:
    trace = passed(drawn("1f1b", 4, 8, 1, 2, sequence=sequence, named=UNNUMBERED[who]), 2)
    table = actions(trace)["actions"]
    assert list(zip(table["stage"], table["action"], table["microbatch"], strict=True)) == list(order("1f1b", 4, 8)[2])
    assert set(table["source"]) == {"inferred"} and table["explained_ratio"].eq(1).all()


@pytest.mark.parametrize("who", NUMBERED)
def test_microbatches_are_read_where_ranges_name_them(who: str) -> None:
    table = actions(passed(drawn("1f1b", 4, 8, 1, 2, sequence=False, named=NUMBERED[who]), 2))["actions"]
    assert list(zip(table["stage"], table["action"], table["microbatch"], strict=True)) == list(order("1f1b", 4, 8)[2])
    assert set(table["source"]) == {"named_range"} and table["explained_ratio"].isna().all()


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_several_stages_per_rank(rank: int) -> None:
    lane = list(order("interleaved_1f1b", 4, 8, 2)[rank])
    for named in (UNNUMBERED["Megatron-LM timers"], NUMBERED["words"]):
        assert read(drawn("interleaved_1f1b", 4, 8, 2, rank, sequence=False, named=named), rank) == lane


def test_as_many_microbatches_as_ranks_are_told_by_sequence_numbers_alone() -> None:
    """Every forward comes before every backward; traffic shows two stages, but not in which order their backwards ran."""
    named = UNNUMBERED["Megatron-LM timers"]
    assert read(drawn("interleaved_1f1b", 4, 4, 2, 0, sequence=False, named=named), 0) == []
    assert read(drawn("interleaved_1f1b", 4, 4, 2, 0, named=named), 0) == list(order("interleaved_1f1b", 4, 4, 2)[0])


def test_a_weight_gradient_that_is_named_makes_the_backward_an_input_gradient() -> None:
    lane = list(order("zb_h1", 4, 8)[1])
    named: Naming = lambda a: [f"{'B' if a.action == 'I' else a.action}{a.microbatch}"]  # noqa: E731
    assert read(drawn("zb_h1", 4, 8, 1, 1, sequence=False, named=named), 1) == lane


def test_a_backward_too_few_leaves_everything_unknown() -> None:
    for named in (UNNUMBERED["Megatron-LM timers"], NUMBERED["letters"]):
        events = drawn("1f1b", 4, 8, 1, 2, sequence=False, named=named)
        events.remove(next(e for e in events if e["name"] in ("backward-compute", "B3")))
        assert read(events, 2) == []


def test_without_a_pipeline_the_same_ranges_name_no_action() -> None:
    events = [e for e in drawn("1f1b", 4, 2, 1, 2, named=NUMBERED["words"]) if "c10d" not in e["name"]]
    assert passed(events, 2).events["action"].isna().all()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("forward_step", NamedAction("F", None)),
        ("backward-compute", NamedAction("B", None)),
        ("_exec_backward_pass", NamedAction("B", None)),
        ("Forward micro batch id: 3", NamedAction("F", 3)),
        ("bwd 2", NamedAction("B", 2)),
        ("W1", NamedAction("W", 1)),
        ("F3.1.0", None),
        ("forward", None),
        ("forward_head", None),
        ("forward-backward", None),
        ("megatron/core/models/gpt.py(12): forward", None),
        ("FSDP::pre_forward", None),
        ("forward_pre_process", None),
        ("Fwd-gpt2-1024-0", None),
        ("bf16", None),
    ],
)
def test_what_a_name_says(name: str, expected: NamedAction | None) -> None:
    assert parse_named_action(name) == expected
