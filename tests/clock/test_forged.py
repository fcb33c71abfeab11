"""Moving the clock of every rank of a job by milliseconds changes no figure: each still equals the exact truth, to the ns."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.forged import AREAS, checker, truth_of
from tracekit import analyze


def moved(folder: Path, into: Path, ahead: dict[int, int]) -> None:
    """A job's traces with each rank's clock set ahead by so many ns."""
    for path in sorted(folder.glob("rank*.json.gz")):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        rank = trace["distributedInfo"]["rank"]
        trace["baseTimeNanoseconds"] += ahead[rank]
        (into / f"rank{rank}.json").write_text(json.dumps(trace))


@pytest.mark.parametrize(("job", "links"), [("p2p_batched", "sends"), ("async_steps", "collectives")])
def test_no_figure_depends_on_the_clocks(shared: Path, tmp_path: Path, job: str, links: str) -> None:
    folder = shared / "forged" / job
    truth = truth_of(folder)
    ahead = {int(r): (-1) ** int(r) * int(r) * 1_300_007 for r in truth["ranks"]}
    moved(folder, tmp_path, ahead)
    for rank, clock in truth["clock"].items():
        clock["offset_ns"] += ahead[int(rank)]
    report = analyze(tmp_path, workers=1).to_dict()
    tallies = checker(shared).check(truth, report, list(AREAS))
    assert [f"{area}: {text}" for area, tally in tallies.items() for text in tally.first] == []
    rows = report["metrics"]["clock"]["tables"]["ranks"]
    assert [(r["offset_ns"], r["source"]) for r in rows] == [(ahead[r["rank"]], links if r["rank"] else "reference") for r in rows]
    assert [f["code"] for f in report["health"]["findings"] if f["severity"] == "warning"] == ["clocks_aligned"]
