"""What do runs without layer ranges still tell? The same layers as the same runs with them."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import pytest

from instrumentation.config import RunConfig, configure
from instrumentation.launch import launch
from tracekit import analyze

RECIPES: dict[str, dict[str, int | str]] = {
    "tp-sp": {},
    "fsdp": {},
    "3d interleaved": {"schedule": "interleaved", "layers": 4, "microbatches": 2, "active": 1, "steps": 3},
}
CALL = ["step", "kind", "group_ranks", "number"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, bool], pd.DataFrame]:
    """Collectives of each recipe with and without layer ranges, numbered within step, kind and group."""
    folder = tmp_path_factory.mktemp("runs")
    sizes = {"hidden": 32, "heads": 4, "sequence": 16, "vocabulary": 32, "microbatch_size": 1, "steps": 4, "active": 2}
    configs = {
        (name, ranges): configure(name.split()[0], out=str(folder / f"{name} {ranges}"), layer_ranges=ranges, **{**sizes, **more})
        for name, more in RECIPES.items()
        for ranges in (True, False)
    }
    launch(list(configs.values()))
    return {key: instances(config) for key, config in configs.items()}


def instances(config: RunConfig) -> pd.DataFrame:
    table = analyze(config.out, workers=1).result("collectives").tables["instances"]
    table = table.assign(group_ranks=table["group_ranks"].map(str))
    return table.assign(number=table.groupby(CALL[:-1]).cumcount())


@pytest.mark.parametrize("name", RECIPES)
def test_layers_are_found_without_their_ranges(runs: Mapping[tuple[str, bool], pd.DataFrame], name: str) -> None:
    both = runs[name, True].merge(runs[name, False], on=CALL, suffixes=("", "_found"), validate="one_to_one")
    layered = both[both["layer_index"].notna()]
    right = layered["layer_index"].eq(layered["layer_index_found"]) & layered["direction"].eq(layered["direction_found"])
    named_elsewhere = both["layer_index_found"].notna() & both["layer_index"].isna()
    assert len(layered) > 10
    assert right.mean() >= 0.95
    assert not named_elsewhere.any()


@pytest.mark.parametrize("name", RECIPES)
def test_with_ranges_every_collective_of_a_layer_has_it(runs: Mapping[tuple[str, bool], pd.DataFrame], name: str) -> None:
    table = runs[name, True]
    inside = table[table["direction"].isin(["forward", "backward", "recompute"])]
    assert inside["layer"].notna().all()
    assert set(table["layer_source"].dropna()) <= {"range", "sequence", "fsdp"}
    buckets = table[table["direction"].eq("gradient") & table["layer_index"].isna()]
    # what is of no single layer is the root's: embedding, last norm and head
    assert buckets["layer"].isna().all() or not buckets["layer"].dropna().str.contains(r"layers\.").any()
