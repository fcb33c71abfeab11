"""How do the facts of single ranks become one Job? Groups, matching over ranks, pairing of sends; then once more on aligned clocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from tracekit.findings import finding
from tracekit.job.align import align, comparable, with_resolution
from tracekit.job.base import Job
from tracekit.job.bases import bases
from tracekit.job.flight import compare
from tracekit.job.inference import complete_groups, cut_groups, infer_groups, nameless
from tracekit.job.layer_numbers import number_layers
from tracekit.job.layer_pattern import layer_pattern
from tracekit.job.layer_siblings import layer_findings
from tracekit.job.matching import match
from tracekit.job.p2p import pair
from tracekit.job.retime import retime
from tracekit.job.topology import DATA_AXES, topology, world_size
from tracekit.model_sizes import ModelSizes
from tracekit.trace import RankFacts
from tracekit.vocabulary import Collective, Direction, Severity


def build(facts: Mapping[tuple[int, int], RankFacts], sizes: ModelSizes | None = None) -> Job:
    """Assemble a job from the facts of its ranks.

    Args:
        facts: facts per (rank, capture), in any order.
        sizes: sizes of the model that stand above those of ``run.json``.

    Returns:
        The job, its ranks sorted, its collectives matched per capture, all times on the clock of the lowest rank.
    """
    ranks, unnumbered = number_layers(dict(sorted(facts.items())))
    sizes = sizes or ModelSizes()
    job = _joined(ranks, sizes)
    clocks = align(ranks, job.instances, job.by_rank, job.p2p)
    aligned = retime(ranks, clocks.table)
    guessed = bool(len(job.instances)) and job.instances["matched_by"].eq("ends").any()
    if guessed or any(aligned[key] is not one for key, one in ranks.items()):
        linked = clocks.table[["capture", "rank", "reference_rank"]].itertuples(index=False)
        job = _joined(aligned, sizes, {(int(capture), int(rank)): int(reference) for capture, rank, reference in linked})
    pattern = layer_pattern(job.instances, job.by_rank, job.steady_steps, job.microbatches)
    flight = compare(ranks, job.table("records"), job.table("group_status"), job.world_size)
    return replace(
        job,
        flight=flight,
        pattern=pattern,
        clocks=clocks.table,
        instances=with_resolution(job.instances, job.by_rank, clocks.table),
        p2p=comparable(job.p2p, clocks.table, ranks),
        findings=(
            *job.findings,
            *unnumbered,
            *layer_findings(pattern.table, pattern.nameless),
            *clocks.findings,
            *bases(ranks, clocks.table),
            *(flight.findings if flight is not None else ()),
        ),
    )


def _joined(ranks: Mapping[tuple[int, int], RankFacts], sizes: ModelSizes, clock_of: Mapping[tuple[int, int], int] | None = None) -> Job:
    """The job on the clocks that the facts are on; ``clock_of``: the reference of each (capture, rank), once they are aligned."""
    job = Job(ranks)
    calls, p2p_calls = job.table("calls"), job.table("p2p_calls")
    types = pd.DataFrame([(*key, one.meta.device_type) for key, one in ranks.items()], columns=["rank", "capture", "device_type"])
    calls, p2p_calls = (frame.merge(types, on=["rank", "capture"], how="left") for frame in (calls, p2p_calls))
    calls = complete_groups(infer_groups(calls, clock_of), world_size(ranks))
    known = topology(ranks, calls, p2p_calls)
    matched = match(calls, known.axis_of, known.described, len(known.missing))
    paired = pair(p2p_calls, known.axis_of, known.described, matched.skewed)
    instances = _data_directions(matched.instances)
    return replace(
        job,
        world_size=known.world_size,
        run=sizes.over(known.run),
        mesh=known.mesh,
        axis_of=known.axis_of,
        instances=instances,
        by_rank=matched.by_rank,
        p2p=paired.p2p,
        findings=(*known.findings, *_group_findings(calls), *matched.findings, *paired.findings),
    )


def _group_findings(calls: pd.DataFrame) -> list[dict[str, Any]]:
    names = cut_groups(calls)
    if not names and (unknown := nameless(calls)):
        says = (
            f"{unknown} executions of collectives name no process group, and their ends do not tell which ranks took part: they are matched with no other "
            "rank, so their waits, transfers and bandwidths are unknown (record with torch 2.2 or later, or add the Flight Recorder dumps)"
        )
        return [finding("groups_unknown", Severity.WARNING, says, count=unknown)]
    if not names:
        return []
    says = (
        f"the trace cuts the rank lists of process groups {', '.join(names[:5])} and nothing else lists them: who is missing from their collectives is unknown"
    )
    return [finding("group_ranks_cut", Severity.WARNING, says, count=len(names))]


def _data_directions(instances: pd.DataFrame) -> pd.DataFrame:
    """Directions that only the mesh axis tells: data-parallel groups carry gradients in backward and parameters in gathers."""
    data = instances["axis"].isin(list(DATA_AXES))
    compute = instances["direction"].isin([Direction.FORWARD, Direction.BACKWARD, Direction.RECOMPUTE])
    gathers = instances["kind"].eq(Collective.ALL_GATHER)
    backward = instances["direction"].eq(Direction.BACKWARD) & instances["kind"].isin([Collective.ALL_REDUCE, Collective.REDUCE_SCATTER])
    direction = instances["direction"].astype(object)
    direction = direction.where(~(data & compute & gathers), str(Direction.PARAMETER)).where(~(data & backward), str(Direction.GRADIENT))
    return instances.assign(direction=direction)
