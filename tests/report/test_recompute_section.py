"""What recomputation saved stands on the page once, and what each number counts is named."""

from __future__ import annotations

from typing import Any

import pytest

from tracekit.report.sections.recompute import recompute


def facts_of(**summary: Any) -> dict[str, str]:
    layers = [{"step": 1, "layer": "layers.0", "layer_index": 0, "recompute_runs": 1, "saved_bytes": 2**20, "recompute_per_saved_gib_ns": 6.5e9}]
    found = {"available": True, "summary": {"mode": "full", **summary}, "tables": {"layers": layers}}
    section = recompute({"metrics": {"recompute": found}})
    assert "time repeated per GiB saved (s)" in section.grids[0].header
    return dict(section.facts)


SAVED = "activations saved at the peak of allocated memory"
LESS = "closed form without recomputation, less the measured activation peak"


@pytest.mark.parametrize(("source", "words"), [("measured", "measured against layers that are kept"), ("closed_form", "closed forms of the two modes")])
def test_what_was_saved_and_how_that_is_known(source: str, words: str) -> None:
    got = facts_of(saved_bytes=2**20, saved_source=source, recompute_per_saved_gib_ns=6.5e9, activation_saved_bytes=2**21)
    assert (got[SAVED], got["how that is known"], got["time repeated per GiB saved"]) == ("1.00 MiB (1.05 MB)", words, "6.50 s")
    assert LESS not in got


def test_where_only_the_peak_tells_it_says_so() -> None:
    got = facts_of(saved_bytes=None, saved_source=None, activation_saved_bytes=2**21)
    assert (got[LESS], got[SAVED], "how that is known" in got) == ("2.00 MiB (2.10 MB)", "unknown", False)
