"""Do the drawings of memory add up, layer by layer, and do those of a what-if show what is unknown and what does not fit?"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from tracekit.figures import memory, memory_what_if
from tracekit.metrics.base import Result

MIB = 2**20
PLACE = {"rank": 0, "capture": 0, "device_type": "gpu", "device": 0, "step": pd.NA}


def peaks(layers: list[tuple[str | None, int | None, int]], activation: int, unknown: int = 5) -> Result:
    """One rank whose peak is activations and unknown bytes, in MiB; layers as (name, index, MiB)."""
    row = {**PLACE, "allocated_peak_bytes": (activation + unknown) * MIB, "activation_bytes": activation * MIB, "unknown_bytes": unknown * MIB}
    own = [{**PLACE, "layer": name, "layer_index": index, "activation_bytes": n * MIB} for name, index, n in layers]
    return Result({}, {"peaks": pd.DataFrame([row]), "by_layer": pd.DataFrame(own).astype({"layer_index": "Int64"})})


def pieces(result: Result) -> dict[str, list[Any]]:
    fig = memory.peak_parts(result)
    assert fig is not None
    return {trace.name: list(zip(trace.customdata or [None], trace.x, strict=True)) for trace in fig.data}


def test_activations_stand_layer_by_layer_within_the_peak() -> None:
    got = pieces(peaks([("layers.1", 1, 3), ("layers.0", 0, 4), ("head", None, 2), (None, None, 1)], 10))
    assert got == {"activation": [("layers.0", 4), ("layers.1", 3), ("head", 2), ("no layer", 1)], "unknown": [(None, 5)]}


def test_many_layers_are_drawn_in_runs() -> None:
    got = pieces(peaks([(f"layers.{i}", i, 1) for i in range(65)], 65))["activation"]
    assert len(got) == 22 and got[0] == ("layers.0 to layers.2", 3) and got[-1] == ("layers.63 to layers.64", 2)
    assert sum(n for _, n in got) == 65


@pytest.mark.parametrize("layers", [[("layers.0", 0, 4)], [(None, None, 10)]])
def test_what_names_no_layer_or_does_not_add_up_is_one_piece(layers: list[tuple[str | None, int | None, int]]) -> None:
    assert pieces(peaks(layers, 10))["activation"] == [(None, 10)]


def test_layers_whose_long_names_begin_alike_are_not_added_up_and_have_ticks() -> None:
    name = "module.module.decoder.really_long_names_of_modules_that_all_begin_alike.layers."
    fig = memory.activations(peaks([(f"{name}{i}", i, 10 + i) for i in range(40)], 1000))
    assert fig is not None
    assert len(set(fig.data[0].x)) == 40 and fig.data[0].x[39].endswith("alike.layers.39")
    assert list(fig.layout.xaxis.ticktext[:3]) == ["0", "2", "4"] and fig.layout.yaxis.title.text == "MiB"


@pytest.mark.parametrize(("mib", "unit", "drawn"), [(9839, "GiB", 9839 / 1024), (98, "MiB", 98)])
def test_memory_is_drawn_in_a_unit_that_suits_it(mib: int, unit: str, drawn: float) -> None:
    fig = memory.peak_parts(peaks([(None, None, 1)], 1, mib))
    assert fig is not None
    assert (fig.layout.xaxis.title.text, {t.name: list(t.x) for t in fig.data}["unknown"]) == (unit, [drawn])


def asked(limit: int | None = None) -> Result:
    rows = [("none, b=4", 6, 4, 50e6, 0, None), ("full, b=4", 3, 1, 70e6, 20e6, 7), ("selective, b=4", 5, 3, None, None, 5)]
    names = ["label", "memory_peak_bytes", "activation_peak_bytes", "step_ns", "recompute_ns", "largest_microbatch"]
    table = pd.DataFrame(rows, columns=names).astype({"step_ns": "Int64", "recompute_ns": "Int64", "largest_microbatch": "Int64"})
    if limit is None:
        table["largest_microbatch"] = pd.NA
    table[["memory_peak_bytes", "activation_peak_bytes"]] *= MIB
    return Result({"memory_limit_bytes": limit}, {"alternatives": table})


def test_a_what_if_shows_peak_and_step_of_every_alternative() -> None:
    fig = memory_what_if.alternatives(asked())
    assert fig is not None
    assert {trace.name: list(trace.x) for trace in fig.data} == {
        "beside activations": [2, 2, 2],
        "activations": [4, 1, 3],
        "step": [50, 50, None],
        "repeated forward": [0, 20, None],
    }
    assert [a.text for a in fig.layout.annotations if a.text == "unknown"] == ["unknown"]
    assert not fig.layout.shapes


def test_what_does_not_fit_is_pale_and_the_largest_microbatch_stands_beside() -> None:
    fig = memory_what_if.alternatives(asked(5 * MIB))
    assert fig is not None
    assert list(fig.data[0].marker.opacity) == [0.35, 1.0, 1.0]
    texts = [a.text for a in fig.layout.annotations]
    assert "b ≤ 7" in texts and "b ≤ 5" in texts and any("1 of 3 need more (pale)" in t for t in texts)
    assert fig.layout.shapes[0].x0 == 5
    far = memory_what_if.alternatives(asked(2**36))
    assert far is not None and not far.layout.shapes and any("enough for all" in a.text for a in far.layout.annotations)


def test_without_alternatives_there_is_nothing_to_draw() -> None:
    assert memory_what_if.alternatives(Result({}, {})) is None
