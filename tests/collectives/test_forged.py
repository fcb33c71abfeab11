"""Forged jobs where not everything can be known, and public traces read once more by plain exact arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tracekit
from tests.forged import checker, report_of, truth_of


def report_of_trace(path: Path) -> dict[str, Any]:
    return tracekit.analyze(path, workers=1).to_dict()


def test_with_ranks_missing_what_can_be_known_is_right(shared: Path) -> None:
    """Whether the last rank to arrive is among those present cannot be seen in their traces: every such wait is a bound."""
    folder = shared / "forged" / "partial"
    truth = truth_of(folder)
    here = set(truth["present_ranks"])
    truth["collectives"] = [c for c in truth["collectives"] if here & set(c["ranks"])]
    for c in truth["collectives"]:
        c["wait_exact"] = set(c["ranks"]) <= here
    tally = checker(shared).check(truth, report_of(folder), ["collectives"])["collectives"]
    assert (tally.first, tally.made > 5000) == ([], True)
    # a collective moves bytes for no longer than its latest rank here was in it
    longest = {
        (r["group"], tuple(r["group_ranks"]), r["seq"]): r["transfer_upper_bound_ns"]
        for r in report_of(folder)["metrics"]["collectives"]["tables"]["instances"]
    }
    known = [(c["transfer"], longest[c["pg"], tuple(sorted(c["ranks"])), c["seq"]]) for c in truth["collectives"] if len(c["ranks"]) > 1]
    assert len(known) > 300 and all(bound is not None and true <= bound + 2 for true, bound in known)
    exact = [x for x in report_of(folder)["metrics"]["collectives"]["tables"]["by_layer"] if x["step"] is None and x["axis"] == "tp"]
    known = {x["layer_index"] for x in exact if x["transfer_ns"] is not None}
    assert known == {0, 1}  # of the tensor-parallel groups only that of stage 0 is whole


def test_a_batched_kernel_is_divided_only_where_it_goes_one_way(shared: Path) -> None:
    folder = shared / "forged" / "p2p_batched"
    truth = truth_of(folder)
    numbers = [int(s["name"].split("#")[1]) for s in truth["steps"]]
    want: dict[tuple[int, int, int], list[list[int | None]]] = {}
    for x in sorted(truth["p2p"], key=lambda x: x["end"]):
        for op in x["ops"]:
            split = [None, None, None] if x["two_way"] else [x["transfer"], x["send_wait"], x["recv_wait"]]
            want.setdefault((numbers[x["step"]], op["src"], op["dst"]), []).append([op["bytes"], *split])
    got: dict[tuple[int, int, int], list[list[int | None]]] = {}
    for r in report_of(folder)["metrics"]["collectives"]["tables"]["p2p"]:
        got.setdefault((r["step"], r["src"], r["dst"]), []).append([r[c] for c in ("nbytes", "transfer_ns", "send_wait_ns", "recv_wait_ns")])
    assert got == want
    directions = {(r["src"] < r["dst"], r["direction"]) for r in report_of(folder)["metrics"]["collectives"]["tables"]["p2p"]}
    assert directions == {(True, "forward"), (False, "backward")}


def test_rank_0_of_a_public_ddp_run(shared: Path) -> None:
    """Sizes, times and the exposed total of every NCCL kernel, as a plain exact reading of the file has them."""
    name = "hta/nccl_parser_config__nccl_data.json.gz"
    want = json.loads((shared / "traces" / "reference.json").read_text())[name]
    metric = report_of_trace(shared / "traces" / name)["metrics"]["collectives"]
    base = want["baseTimeNanoseconds"]
    size = {r["instance"]: (r["kind"].replace("_", ""), r["nbytes"]) for r in metric["tables"]["instances"]}
    got = sorted((r["start_ns"] - base, r["end_ns"] - r["start_ns"], *size[r["instance"]]) for r in metric["tables"]["by_rank"])
    assert got == sorted((k["start_ns"], k["dur_ns"], k["collective"], k["bytes"]) for k in want["comm_kernels_with_meta"])
    assert metric["summary"]["exposed_total_ns"] == want["devices"]["0"]["exposed_comm_ns"]
    assert metric["summary"]["wait_total_ns"] is None


def test_eight_ranks_without_any_metadata_are_matched_by_common_ends(shared: Path) -> None:
    name = "param/inputs__dlrm_kineto.tar.gz"
    want = json.loads((shared / "traces" / "reference.json").read_text())[name]["multirank"]["matched"]
    metric = report_of_trace(shared / "traces" / name)["metrics"]["collectives"]
    got = {(r["rank"], r["start_ns"]): (r["wait_ns"], r["transfer_ns"]) for r in metric["tables"]["by_rank"]}
    assert got == {(int(r), x["start_ns"]): (x["wait_ns"], x["transfer_ns"]) for m in want for r, x in m["by_rank"].items()}
    kinds = [r["kind"] for r in metric["tables"]["instances"]]
    assert (kinds.count("all_to_all"), kinds.count("all_reduce")) == (5, 3)
