"""Cases of Flight Recorder dumps."""

from __future__ import annotations

from pathlib import Path

from tests.cases.case import case, covers


@covers("f02-host-in-file-name")
def test_a_host_name_that_ends_in_digits_is_no_rank(shared: Path) -> None:
    one = case(shared, "f02-host-in-file-name")
    report = one.report()
    flight = report["metrics"]["flight_recorder"]
    assert report["run"]["ranks"] == one.values["ranks"] == [row["rank"] for row in flight["tables"]["ranks"]]
    assert [row["group_ranks"] for row in flight["tables"]["groups"]] == [one.values["group_members"]]
    assert flight["summary"]["collectives_matched"] == one.values["matched"]


@covers("f04-p2p-has-own-numbering")
def test_sends_do_not_clash_with_collectives_of_the_same_number(shared: Path) -> None:
    one = case(shared, "f04-p2p-has-own-numbering")
    summary = one.report()["metrics"]["flight_recorder"]["summary"]
    assert {key: summary[key] for key in ("collectives_matched", "p2p_matched", "mismatches")} == one.values
