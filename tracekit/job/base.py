"""What is known of all ranks together? The frozen Job that metrics read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from tracekit import schema
from tracekit.job.flight import Flight
from tracekit.job.layer_pattern import LayerPattern, no_layers
from tracekit.once import Once
from tracekit.trace import RankFacts


@dataclass(frozen=True)
class Job(Once):
    """The facts of every rank and capture, and how the ranks hang together.

    Attributes:
        ranks: facts per (rank, capture), in that order.
        world_size: ranks of the whole job, or None.
        run: the run directory's ``run.json``, or {}.
        mesh: axis -> degree, where run.json or the process groups tell; axes of size 1 may be absent.
        axis_of: canonical rank list of a group ('0,1') -> mesh axis.
        instances: collectives matched over ranks, one row each (``job.matching``).
        by_rank: the calls of those instances, one row per rank (``job.matching``).
        p2p: sends matched with their receives (``job.matching``).
        clocks: each rank's clock against the reference rank's (``job.align``); the facts' times are already on the latter.
        flight: the ranks' Flight Recorder dumps laid side by side (``job.flight``), or None.
        pattern: what tensor-parallel layers issue per microbatch (``job.layer_pattern``).
        findings: health findings of the job itself (rows of ``schema.FINDINGS`` as dicts).
        link_gbps: what the user says of the links: axis -> GB/s of bus bandwidth per GPU (``link_speed``).
    """

    ranks: Mapping[tuple[int, int], RankFacts]
    world_size: int | None = None
    run: Mapping[str, Any] = field(default_factory=dict)
    mesh: Mapping[str, int] = field(default_factory=dict)
    axis_of: Mapping[str, str] = field(default_factory=dict)
    instances: pd.DataFrame = field(default_factory=pd.DataFrame)
    by_rank: pd.DataFrame = field(default_factory=pd.DataFrame)
    p2p: pd.DataFrame = field(default_factory=pd.DataFrame)
    clocks: pd.DataFrame = field(default_factory=pd.DataFrame)
    flight: Flight | None = None
    pattern: LayerPattern = field(default_factory=no_layers)
    findings: tuple[Mapping[str, Any], ...] = ()
    link_gbps: Mapping[str, float] = field(default_factory=dict)

    def table(self, name: str) -> pd.DataFrame:
        """One fact table of all ranks, with ``rank`` and ``capture`` in front."""
        return self.once(f"table {name}", lambda: self._table(name)).copy(deep=False)

    def _table(self, name: str) -> pd.DataFrame:
        here = {key: part for key, facts in self.ranks.items() if len(part := facts[name])}
        rows = pd.concat(here.values(), ignore_index=True) if here else schema.empty(schema.FACTS[name])
        keys = np.array(list(here), np.int64).reshape(-1, 2).repeat(np.array([len(part) for part in here.values()], np.int64), axis=0)
        rows = rows.drop(columns="rank") if "rank" in rows else rows
        return pd.concat([pd.DataFrame(keys, columns=["rank", "capture"]), rows], axis=1)

    @property
    def steady_steps(self) -> frozenset[int]:
        """Steps that are complete and no warm-up on every rank; every complete step where none is left, every step where none is complete."""
        return self.once("steady_steps", self._steady_steps)

    def _steady_steps(self) -> frozenset[int]:
        steps = self.table("steps")
        complete = steps.groupby("step").complete.all()
        warm = steps.groupby("step").warmup.any()
        whole = set(complete.index[complete])
        return frozenset(int(s) for s in whole - set(warm.index[warm])) or frozenset(int(s) for s in whole or complete.index)

    @property
    def microbatches(self) -> int | None:
        """Microbatches per step and data-parallel rank as run.json states them, or None."""
        number = (self.run.get("training") or {}).get("microbatches")
        return int(number) if isinstance(number, int) and number > 0 else None

    @property
    def emulated(self) -> bool:
        """Whether any compute of the job was slept instead of computed."""
        busy = self.table("busy")
        return bool(len(busy) and busy.emulated_ns.gt(0).any())
