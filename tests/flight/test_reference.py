"""Two 16-rank sets of dumps of real faults: are the answers those of the reference, and of the analyser that ships with them?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tracekit import analyze
from tracekit.readers import flight_recorder
from tracekit.reading import DEFAULT


@pytest.fixture(scope="module", params=["gpu_error_1st", "lock_gil_1st"])
def fault(request: pytest.FixtureRequest, shared: Path) -> tuple[dict[str, Any], dict[str, Any], Path]:
    """The report, what the reference says, and the folder of dumps."""

    def found(node: Any) -> Any:
        if isinstance(node, dict):
            return node.get(f"nvrx/{request.param}") or next((hit for value in node.values() if (hit := found(value))), None)
        return None

    folder = shared / "traces" / "nvrx" / request.param
    return analyze(folder, workers=1).to_dict(), found(json.loads((shared / "traces" / "reference.json").read_text())), folder


def test_answers_are_those_of_the_reference(fault: tuple[dict[str, Any], dict[str, Any], Path]) -> None:
    report, reference, _ = fault
    tables, summary = (report["metrics"]["flight_recorder"][part] for part in ("tables", "summary"))
    assert report["run"]["ranks"] == reference["ranks"]
    why: dict[tuple[str, int], dict[str, str]] = {}
    for row in tables["missing"]:
        why.setdefault((row["group"], row["seq"]), {})[str(row["rank"])] = row["why"].replace("_", " ")
    ours = {
        (c["group"], c["seq"]): (c["group_desc"], c["group_ranks"], c["name"], c["present"], c["missing"], c["behind"], c["created_ns"], c["mismatch"])
        for c in tables["collectives"]
    }
    assert ours == {
        (c["pg"], c["seq"]): (c["desc"], c["members"], c["ops"][0], c["present"], c["missing"], c["behind"], c["first_created_ns"], "none")
        for c in reference["collectives"]
    }
    assert why == {(c["pg"], c["seq"]): c["missing_why"] for c in reference["collectives"] if c["missing"]}
    for fault, column, others in (("not_enqueued", "first_not_enqueued_by_pg", "present"), ("behind", "first_behind_by_pg", "completed_elsewhere")):
        parts = {f["group"]: (f["seq"], f["ranks"], f["others"]) for f in tables["faults"] if f["fault"] == fault}
        assert parts == {pg: (first["seq"], first[fault], first[others]) for pg, first in reference[column].items()}
    assert summary["suspects"] == reference["suspects"]
    assert summary["ranks_not_enqueued"] == reference["ranks_not_enqueued_somewhere"]
    assert summary["ranks_behind"] == reference["ranks_behind_somewhere"]
    assert summary["ranks_without_entries"] == reference["ranks_with_no_entries"]
    assert (summary["mismatches"], len(tables["collectives"])) == (0, reference["n_collective_keys"])


def test_answers_are_those_of_the_analyser_that_ships_with_the_dumps(fault: tuple[dict[str, Any], dict[str, Any], Path]) -> None:
    report, reference, _ = fault
    groups = {g["group"]: g for g in report["metrics"]["flight_recorder"]["tables"]["groups"]}
    rows = reference["upstream"]["rows"]
    assert rows
    for row in rows:
        assert (groups[row["pg"]]["suspects"], groups[row["pg"]]["ranks_with_entries"]) == (row["missing"], row["identified"])
    assert {pg for pg, g in groups.items() if g["suspects"]} == {row["pg"] for row in rows}


def test_sends_and_receives_are_counted_as_the_reference_counts_them(fault: tuple[dict[str, Any], dict[str, Any], Path]) -> None:
    report, reference, _ = fault
    rows = report["metrics"]["flight_recorder"]["tables"]["p2p"]
    unequal = [{"pg": r["group"], "src": r["src"], "dst": r["dst"], "sends": r["sends"], "recvs": r["recvs"]} for r in rows if r["sends"] != r["recvs"]]
    assert sorted(unequal, key=str) == sorted(({k: u[k] for k in unequal[0]} for u in reference["p2p"]["unequal"]), key=str)
    assert sum(r["sends"] + r["recvs"] for r in rows) == reference["p2p"]["n_entries"]
    assert sum(min(r["sends"], r["recvs"]) for r in rows) == reference["p2p"]["pairs_by_direction_count"]


def test_the_faulty_ranks_are_named_before_any_number(fault: tuple[dict[str, Any], dict[str, Any], Path]) -> None:
    report, reference, _ = fault
    assert report["health"]["verdict"] == "warnings"
    told = [f for f in report["health"]["findings"] if f["severity"] != "info"]
    assert {f["code"] for f in told} <= {"flight_recorder_not_enqueued", "flight_recorder_behind"}
    assert {f["rank"] for f in told if f["rank"] is not None} == set(reference["suspects"])


def test_each_dump_comes_back_whole_and_tells_its_rank_where_it_sends(fault: tuple[dict[str, Any], dict[str, Any], Path]) -> None:
    _, reference, folder = fault
    for rank, facts in reference["per_rank"].items():
        path = folder / f"_dump_{rank}"
        (trace,) = flight_recorder.read(path.read_bytes(), path, DEFAULT)
        records = trace.stated["records"]
        assert (len(records), int(records["p2p"].sum()), len(trace.meta.groups)) == (facts["n_entries"], facts["n_p2p"], facts["n_pg"])
        assert records["name"].str.partition(" ")[0].value_counts().to_dict() == facts["entries_by_name"] if len(records) else facts["entries_by_name"] == {}
        assert trace.meta.rank == (int(rank) if facts["n_p2p"] else None)
        assert trace.findings == ()
        for name, group in trace.meta.groups.items():
            assert (group["desc"], list(group["ranks"])) == (reference["pgs"][name]["desc"], reference["pgs"][name]["ranks"])
