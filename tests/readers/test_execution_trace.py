"""Do execution traces of every form give their operators, bytes, calls and rank, and is a damaged one refused with its byte?"""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit import analyze
from tracekit.errors import InputError, TracekitError
from tracekit.readers import execution_trace
from tracekit.reading import Reading
from tracekit.trace import RankTrace

WEIGHT, BATCH, OUT = [7, 3, 0, 16, 4, "cuda:0"], [8, 4, 0, 8, 4, "cuda:0"], [9, 5, 0, 8, 4, "cuda:0"]
GROUPS = '[{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "ranks": [], "group_size": 4, "group_count": 2}, '
GROUPS += '{"pg_name": "1", "pg_desc": "mesh_tp", "backend_config": "cuda:nccl", "ranks": [2, 3], "group_size": 2, "group_count": 2}]'


def old(name: str, inputs: list[Any] = [], types: list[str] = [], outputs: list[Any] = [], out_types: list[str] = []) -> dict[str, Any]:  # noqa: B006
    """A node as schema 1.0.1 writes it."""
    return {"name": name, "id": 5, "parent": 4, "inputs": inputs, "input_types": types, "outputs": outputs, "output_types": out_types}


def new(name: str, inputs: list[Any], types: list[str], outputs: list[Any] = [], out_types: list[str] = [], **attrs: Any) -> dict[str, Any]:  # noqa: B006
    """A node as the Chakra schemas write it."""
    described = [{"name": k, "type": "string", "value": v} for k, v in attrs.items()]
    sides = {"inputs": {"values": inputs, "shapes": [], "types": types}, "outputs": {"values": outputs, "shapes": [], "types": out_types}}
    return {"id": 5, "name": name, "ctrl_deps": 4, **sides, "attrs": described}


def comms(name: str, group: Any, rank: int, seq: Any = 3, *, sent: list[Any] = BATCH, got: list[Any] = BATCH, **attrs: Any) -> dict[str, Any]:
    """A ``record_param_comms`` node."""
    types = ["Tensor(float)", "Int", "Tuple[String,String]", "Int", "String", "GenericList[]", "GenericList[]"]
    return new("record_param_comms", [sent, seq, group, rank, name, [], []], types, [got], ["Tensor(float)"], **attrs)


def read(*nodes: dict[str, Any], version: str = "1.1.0-chakra.0.0.4", reading: Reading = Reading()) -> RankTrace:  # noqa: B008
    text = json.dumps({"schema": version, "pid": 1, "time": "2026-01-01", "start_ts": 1, "nodes": list(nodes), "finish_ts": 2}).encode()
    assert execution_trace.sniff(text)
    return execution_trace.read(text, Path("et.json"), reading)[0]


def init() -> dict[str, Any]:
    return new("## process_group:init ##", [GROUPS], ["String"])


def known(frame: pd.DataFrame, *columns: str) -> list[list[Any]]:
    values = frame[list(columns)].astype(object)
    return [list(row) for row in values.where(values.notna(), None).itertuples(index=False)]


def test_both_forms_give_the_same_operators() -> None:
    types = ["Tensor(float)", "Tensor(float)", "Int"]
    for form, version in ((old, "1.0.1"), (new, "1.0.2-chakra.0.0.4")):
        mm = form("aten::mm", [BATCH, WEIGHT, 1], types, [OUT], ["Tensor(float)"])
        trace = read(mm, mm, form("aten::relu_", [OUT], types[:1], [OUT], types[:1]), version=version)
        assert known(trace.stated["operators"], "name", "count", "input_bytes", "output_bytes") == [["aten::mm", 2, 2 * 96, 2 * 32], ["aten::relu_", 1, 32, 32]]
        assert (trace.meta.rank, trace.meta.device_type, len(trace.events), trace.findings) == (None, None, 0, ())


def test_lists_of_tensors_add_up_and_empty_ones_weigh_nothing() -> None:
    empty = [11, 0, 0, 0, 0, ""]
    nested = new(
        "cat",
        [[BATCH, [WEIGHT, "<None>"]], empty, "<None>"],
        ["GenericList[Tensor(float),GenericList[Tensor(float),None]]", "Tensor(nullptr (uninitialized))", "None"],
    )
    assert known(read(nested).stated["operators"], "input_bytes", "output_bytes") == [[96, 0]]


def test_a_tensor_without_a_size_makes_the_sum_unknown() -> None:
    trace = read(new("f", [BATCH], ["Tensor(float)"]), new("f", [12], ["Tensor(float)"]), new("g", [BATCH], ["Tensor(float)"]))
    assert known(trace.stated["operators"], "name", "input_bytes") == [["f", None], ["g", 32]]


def test_calls_name_their_group_rank_and_size() -> None:
    tp = {"global_rank_start": 2, "global_rank_stride": 1, "pg_size": 2, "dtype": "Float"}
    trace = read(
        init(),
        comms("allreduce", ["1", "mesh_tp"], 1, [7, False], **tp),
        comms("_allgather_base", ["1", "mesh_tp"], 1, [8, False], sent=BATCH, got=WEIGHT, **tp),
        comms("broadcast", ["0", "default_pg"], 0, [2, False]),
        comms("send", ["1", "mesh_tp"], 0, [1, True], **tp),
        comms("all_to_allv", ["0", "default_pg"], 3, [3, False], sent=BATCH, got=WEIGHT),
        comms("wait", ["", ""], 1, [7, False]),
    )
    assert known(trace.stated["records"], "kind", "group", "group_desc", "group_ranks", "seq", "peer", "nbytes") == [
        ["all_reduce", "1", "mesh_tp", "2,3", 7, None, 32],
        ["all_gather", "1", "mesh_tp", "2,3", 8, None, 64],
        ["broadcast", "0", "default_pg", "0,1,2,3", 2, None, 32],
        ["send", "1", "mesh_tp", "2,3", 1, 2, 32],
        ["all_to_all", "0", "default_pg", "0,1,2,3", 3, None, 32],
    ]
    assert (trace.meta.rank, trace.meta.world_size, trace.meta.backend) == (3, 4, "nccl")
    assert trace.meta.groups["1"] == {"desc": "mesh_tp", "ranks": (2, 3)}


def test_ranks_of_a_group_follow_from_first_and_stride() -> None:
    trace = read(comms("allreduce", ["5", "mesh_dp"], 1, global_rank_start=1, global_rank_stride=4, pg_size=3))
    assert known(trace.stated["records"], "group_ranks", "group_size") == [["1,5,9", 3]]
    assert trace.meta.rank == 5


def test_pointers_of_older_traces_stand_for_names() -> None:
    groups = '[{"pg_name": "0", "backend_id": 821, "backend_config": "cuda:nccl", "ranks": [], "group_size": 2}]'
    trace = read(new("## process_group:init ##", [groups], ["String"]), comms("allreduce", 821, 1), comms("allreduce", 999, 0))
    assert known(trace.stated["records"], "group", "group_ranks") == [["0", "0,1"], ["0x3e7", None]]
    assert trace.meta.rank == 1


def test_without_a_list_of_groups_the_only_group_is_taken_for_the_job() -> None:
    trace = read(comms("allreduce", 821, 2), comms("allreduce", 821, 2), version="1.0.1")
    assert trace.meta.rank == 2
    assert [f["code"] for f in trace.findings] == ["rank_inferred"]
    assert read(comms("allreduce", 821, 2), comms("allreduce", 999, 2)).meta.rank is None


def test_calls_that_contradict_each_other_name_no_rank() -> None:
    trace = read(init(), comms("allreduce", ["0", "default_pg"], 2), comms("allreduce", ["0", "default_pg"], 3))
    assert trace.meta.rank is None
    assert [(f["code"], f["severity"]) for f in trace.findings] == [("rank_ambiguous", "warning")]


def test_a_gloo_call_is_told_by_its_operator() -> None:
    gather = new(
        "c10d::allgather_",
        [[[BATCH, BATCH]], [BATCH], "<Object>"],
        ["GenericList[GenericList[Tensor(float),Tensor(float)]]", "GenericList[Tensor(float)]", "Object"],
    )
    trace = read(gather, new("c10d::barrier", ["<Object>"], ["Object"]), new("gloo:all_gather", [BATCH], ["Tensor(float)"]))
    assert known(trace.stated["records"], "kind", "nbytes", "group", "seq") == [["all_gather", 64, None, None], ["barrier", None, None, None]]


def test_an_operator_around_a_record_is_no_second_call() -> None:
    outer = {**new("c10d::allreduce_", [[BATCH]], ["GenericList[Tensor(float)]"]), "id": 4}
    assert len(read(outer, comms("allreduce", ["0", "default_pg"], 0)).stated["records"]) == 1


def test_what_is_damaged_is_refused_with_its_byte() -> None:
    whole = json.dumps({"schema": "1.0.1", "nodes": [old("aten::mm"), old("aten::mm")]}).encode()
    with pytest.raises(InputError, match=f"truncated: the JSON ends early at byte {len(whole) - 9}, line 1") as cut:
        execution_trace.read(whole[:-9], Path("et.json"))
    assert cut.value.offset == len(whole) - 9
    with pytest.raises(InputError, match="not valid JSON at byte"):
        execution_trace.read(whole.replace(b'"aten::mm"', b"aten::mm", 1), Path("et.json"))
    with pytest.raises(InputError, match="0 nodes"):
        execution_trace.read(b'{"schema": "1.0.1", "nodes": []}', Path("et.json"))
    with pytest.raises(InputError, match="--max-events"):
        execution_trace.read(whole, Path("et.json"), Reading(max_events=1))


@pytest.mark.parametrize("cut", [1, 9, 40])
def test_whole_nodes_before_a_cut_can_be_saved(cut: int) -> None:
    whole = json.dumps({"schema": "1.0.1", "nodes": [old("aten::mm"), old("aten::mm"), old("aten::add")]}).encode()
    (trace,) = execution_trace.read(whole[:-cut], Path("et.json"), Reading(salvage=True))
    assert trace.stated["operators"]["count"].sum() == (3 if cut == 1 else 2)
    assert [(f["code"], f["severity"]) for f in trace.findings] == [("salvaged", "warning")]
    with pytest.raises(InputError, match="truncated"):
        execution_trace.read(whole[:30], Path("et.json"), Reading(salvage=True))


def test_what_leaves_no_doubt_is_put_right_and_said() -> None:
    text = json.dumps({"schema": "1.0.1", "nodes": [old("f", ["x"], ["Double"])]}).encode().replace(b'"x"', b"-Infinity")
    (trace,) = execution_trace.read(text, Path("et.json"))
    assert [(f["code"], f["count"]) for f in trace.findings] == [("no_numbers", 1)]


def test_nodes_without_a_name_are_counted_as_dropped() -> None:
    trace = read(old("aten::mm"), {"id": 3, "name": None}, {"id": [1], "name": 7, "attrs": 5})
    assert [(f["code"], f["count"]) for f in trace.findings] == [("records_dropped", 2)]


LEAF = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6)
JSON = st.recursive(LEAF, lambda inner: st.lists(inner, max_size=7) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=12)


@settings(max_examples=150)
@given(JSON, JSON, JSON, st.sampled_from(["record_param_comms", "## process_group:init ##", "c10d::allreduce_", "aten::mm"]))
def test_whatever_stands_in_a_node_is_read_or_refused(values: Any, types: Any, attrs: Any, name: str) -> None:
    node = {"id": values, "name": name, "ctrl_deps": types, "inputs": {"values": values, "types": types}, "outputs": attrs, "attrs": attrs}
    nodes = [node, comms("allreduce", values, 1, types, pg_size=attrs), {**node, "inputs": values, "input_types": types}]
    try:
        (trace,) = execution_trace.read(json.dumps({"schema": "1.1.0", "nodes": nodes}).encode(), Path("et.json"))
    except TracekitError:
        return
    assert trace.stated["operators"]["count"].sum() == 3


def public(shared: Path) -> dict[str, bytes]:
    """Every public execution trace: label -> text."""
    traces, out = shared / "traces", {}
    for name in json.loads((traces / "reference.json").read_text()):
        archive, _, member = name.partition("!")
        if "_et" in name and not member and name.endswith(".json.gz"):
            out[name] = gzip.decompress((traces / name).read_bytes())
        elif member.endswith(".json") and ("pytorch_et" in name or "1.0.2-chakra" in name) and not member.startswith("._"):
            with tarfile.open(traces / archive) as tar:
                stream = tar.extractfile(member)
                assert stream is not None
                out[name] = stream.read()
    return out


def test_public_files_have_the_counts_of_a_plain_reading(shared: Path) -> None:
    reference = json.loads((shared / "traces" / "reference.json").read_text())
    files = public(shared)
    assert len(files) == 13
    for name, text in files.items():
        assert execution_trace.sniff(text[:65536]), name
        (trace,) = execution_trace.read(text, Path(name))
        operators = trace.stated["operators"].set_index("name")["count"]
        assert operators.sum() == reference[name]["n_nodes"], name
        assert operators.get("record_param_comms", 0) == reference[name]["n_record_param_comms"], name
        assert operators.get("## process_group:init ##", 0) == reference[name]["n_named_process_group_init"], name
        assert trace.meta.versions == {"execution_trace": reference[name]["schema"]}
        assert all(f["severity"] == "info" for f in trace.findings), name


def test_a_tar_of_ranks_loads_whole(shared: Path) -> None:
    report = analyze(shared / "traces" / "param" / "inputs__dlrm_pytorch_et.tar.gz", workers=1).to_dict()
    assert report["run"]["ranks"] == list(range(8))
    operators = report["metrics"]["operators"]
    assert operators["summary"]["nodes"] == 8 * 1675
    assert {r["rank"]: r["nodes"] for r in operators["tables"]["ranks"]} == dict.fromkeys(range(8), 1675)


def test_operators_of_ranks_are_put_together(tmp_path: Path) -> None:
    types = ["Tensor(float)", "Tensor(float)"]
    for rank in range(2):
        nodes = [init(), comms("allreduce", ["0", "default_pg"], rank), new("aten::mm", [BATCH, WEIGHT], types, [OUT], types[:1])]
        extra = [new("aten::mm", [13, WEIGHT], types, [OUT], types[:1])] if rank else []
        (tmp_path / f"et{rank}.json").write_text(json.dumps({"schema": "1.1.0-chakra.0.0.4", "nodes": nodes + extra}))
    metric = analyze(tmp_path, workers=1).to_dict()["metrics"]["operators"]
    assert metric["summary"] == {"nodes": 7, "calls": 5, "operators": 2, "ranks": 2}
    rows = {r["name"]: (r["ranks"], r["count"], r["input_bytes"], r["output_bytes"]) for r in metric["tables"]["operators"]}
    assert rows == {"aten::mm": (2, 3, None, 96), "record_param_comms": (2, 2, 64, 64)}
    assert any("null" in note for note in metric["notes"])
