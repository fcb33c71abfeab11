"""Files that share names between nodes, or claim one rank twice."""

from __future__ import annotations

from pathlib import Path

from tests.cases.case import case, covers, devices, shell


@covers("x01-same-names-two-nodes")
def test_ranks_come_from_the_files_and_not_from_their_names(shared: Path) -> None:
    one = case(shared, "x01-same-names-two-nodes")
    report = one.report()
    assert report["run"]["ranks"] == one.values["ranks"]
    assert {str(row["rank"]): row["compute_ns"] / 1000 for row in devices(report)} == one.values["kernel_us_by_rank"]


@covers("x03-rank-claimed-twice")
def test_two_files_of_one_rank_are_refused_by_name(shared: Path) -> None:
    one = case(shared, "x03-rank-claimed-twice")
    line = one.refusal()
    assert f"rank {one.values['duplicate_rank']}" in line
    assert all(f"rank {rank}" in line for rank in one.values["missing_ranks"])
    code, out, err = shell("analyze", one.path)
    assert (code, out) == (4, "") and line in err
