"""How do the facts of single ranks become one Job? Groups, then matching over ranks, then pairing of sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from tracekit.job.base import Job
from tracekit.job.inference import infer_groups
from tracekit.job.matching import match
from tracekit.job.p2p import pair
from tracekit.job.topology import DATA_AXES, canonical, topology
from tracekit.trace import RankFacts
from tracekit.vocabulary import Collective, Direction


def build(facts: Mapping[tuple[int, int], RankFacts]) -> Job:
    """Assemble a job from the facts of its ranks.

    Args:
        facts: facts per (rank, capture), in any order.

    Returns:
        The job, its ranks sorted, its collectives matched per capture.
    """
    ranks = dict(sorted(facts.items()))
    job = Job(ranks)
    calls, p2p_calls = job.table("calls"), job.table("p2p_calls")
    types = pd.DataFrame([(*key, one.meta.device_type) for key, one in ranks.items()], columns=["rank", "capture", "device_type"])
    calls, p2p_calls = (frame.merge(types, on=["rank", "capture"], how="left") for frame in (calls, p2p_calls))
    calls = infer_groups(calls)
    known = topology(ranks, calls, p2p_calls)
    calls = _fill_world(calls, known.world_size)
    matched = match(calls, known.axis_of, known.described, len(known.missing))
    paired = pair(p2p_calls, known.axis_of, known.described, matched.skewed)
    instances = _data_directions(matched.instances)
    return replace(
        job,
        world_size=known.world_size,
        run=known.run,
        mesh=known.mesh,
        axis_of=known.axis_of,
        instances=instances,
        by_rank=matched.by_rank,
        p2p=paired.p2p,
        findings=(*known.findings, *matched.findings, *paired.findings),
    )


def _fill_world(calls: pd.DataFrame, world: int | None) -> pd.DataFrame:
    """A group as large as the job holds every rank, even where the trace cuts its list of ranks."""
    if not world:
        return calls
    whole = calls["group_ranks"].isna() & calls["group_size"].eq(world).fillna(False).astype(bool)
    return calls.assign(group_ranks=calls["group_ranks"].astype(object).where(~whole, canonical(range(world)))) if whole.any() else calls


def _data_directions(instances: pd.DataFrame) -> pd.DataFrame:
    """Directions that only the mesh axis tells: data-parallel groups carry gradients in backward and parameters in gathers."""
    data = instances["axis"].isin(list(DATA_AXES))
    compute = instances["direction"].isin([Direction.FORWARD, Direction.BACKWARD, Direction.RECOMPUTE])
    gathers = instances["kind"].eq(Collective.ALL_GATHER)
    backward = instances["direction"].eq(Direction.BACKWARD) & instances["kind"].isin([Collective.ALL_REDUCE, Collective.REDUCE_SCATTER])
    direction = instances["direction"].astype(object)
    direction = direction.where(~(data & compute & gathers), str(Direction.PARAMETER)).where(~(data & backward), str(Direction.GRADIENT))
    return instances.assign(direction=direction)
