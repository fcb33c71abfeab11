"""What filled the memory? ``tracekit memory PATH…`` prints what was alive at the peak, by owner, layer, microbatch and maker."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tracekit.cli.reading import Capture, Workers, reads
from tracekit.cli.screen import meter, writable
from tracekit.reading import DEFAULT, Reading


@reads
def memory(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="Run directory, trace files or memory snapshots of one job.", show_default=False)],
    rank: Annotated[int | None, typer.Option(min=0, help="Rank to look at.", show_default="the fullest")] = None,
    step: Annotated[int | None, typer.Option(min=0, help="Step to look at.", show_default="the whole trace")] = None,
    top: Annotated[int, typer.Option(min=1, help="Most groups of blocks to list.")] = 20,
    blocks: Annotated[Path | None, typer.Option("--blocks", metavar="FILE", help="Write the life of every allocation to this .csv or .parquet file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Write one JSON document to stdout, and nothing else.")] = False,
    capture: Capture = None,
    workers: Workers = None,
    reading: Reading = DEFAULT,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Tell what was alive when a device's memory was fullest.

    Groups of blocks by what they were for, and by the layer, microbatch and operator that made them, each with the rule
    that told it; the groups add up to the peak. --blocks writes every allocation: bytes, when and by which operator it was
    made and freed, layer, microbatch, step and owner.

    \b
    Examples:
      tracekit memory runs/pp
      tracekit memory runs/pp --rank 3 --step 2 --top 50
      tracekit memory runs/pp --rank 0 --blocks allocations.parquet
      tracekit memory snapshot.pickle --json
    """
    from tracekit.analysis import analyze as measure
    from tracekit.errors import UsageError

    if blocks is not None:
        if blocks.suffix not in (".csv", ".parquet"):
            raise UsageError(f"--blocks writes .csv or .parquet, not {blocks.name!r}")
        writable(blocks)
    with meter() as progress:
        result = measure(list(paths), workers=workers, progress=progress, reading=reading, capture=capture).result("memory")
    if not result.available:
        raise UsageError(f"nothing to tell of the memory: {result.reason}")
    peaks = result.tables["peaks"]
    rows = peaks[peaks["step"].isna() if step is None else peaks["step"].eq(step).fillna(False)]
    rows = rows if rank is None else rows[rows["rank"].eq(rank)]
    if not len(rows):
        ranks, steps = sorted(peaks["rank"].unique().tolist()), sorted(peaks["step"].dropna().unique().tolist())
        raise UsageError(f"no memory of that rank and step; there are ranks {ranks[:16]} and steps {steps[:16]}")
    gpu = rows["device_type"].eq("gpu")
    rows = rows[gpu] if gpu.any() else rows
    most = rows.iloc[int(rows["allocated_peak_bytes"].to_numpy().argmax())]
    owners = result.tables["owners"]
    same = owners["step"].isna() if step is None else owners["step"].eq(step).fillna(False)
    for name in ("rank", "capture", "device_type", "device"):
        same &= owners[name].eq(most[name])
    held = owners[same].sort_values("nbytes", ascending=False, kind="stable")
    if blocks is not None:
        _write_blocks(blocks, list(paths), reading, capture, rank)
    if json:
        document = {"schema": "tracekit.memory_peak/1", "peak": _plain(most.to_dict()), "owners": [_plain(row) for row in held.to_dict("records")]}
        sys.stdout.write(json_module.dumps(document, indent=1, ensure_ascii=False) + "\n")
        return
    _print(most, held, top)


def _write_blocks(file: Path, paths: list[Path], reading: Reading, capture: int | None, rank: int | None) -> None:
    """Every allocation of the chosen ranks, one row each."""
    import pandas as pd

    from tracekit.cells import safe
    from tracekit.cli.screen import say
    from tracekit.facts.memory import lifetimes
    from tracekit.ingest import traces

    parts = []
    for trace in traces(paths, reading, capture):
        if rank is None or trace.meta.rank == rank:
            lives = lifetimes(trace)
            if len(lives):
                parts.append(lives.assign(rank=pd.array([trace.meta.rank] * len(lives), "Int64"), capture=trace.meta.capture))
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    front = [c for c in ("rank", "capture") if c in table]
    table = table[[*front, *(c for c in table.columns if c not in front)]]
    if file.suffix == ".parquet":
        table.to_parquet(file, index=False)
    else:
        words = {c: table[c].map(safe, na_action="ignore") for c in table.select_dtypes(exclude=["number", "bool"]).columns}
        table.assign(**words).to_csv(file, index=False)
    say(f"{len(table):,} allocations written to {file}")


def _plain(row: dict[Any, Any]) -> dict[str, Any]:
    """A row for JSON: null for what is unknown, Python's own numbers."""
    import pandas as pd

    return {str(k): None if pd.isna(v) else v.item() if hasattr(v, "item") else v for k, v in row.items()}


def _print(most: Any, held: Any, top: int) -> None:
    import pandas as pd

    from tracekit.wording import clean, sizes

    place = f"rank {most['rank']}, " + ("host memory" if most["device_type"] == "cpu" else f"GPU {most['device']}")
    typer.echo(f"{place}: {sizes(most['allocated_peak_bytes'])} allocated at the peak\n")
    sums = held.groupby("category", sort=False)["nbytes"].sum().sort_values(ascending=False)
    for name, nbytes in sums.items():
        typer.echo(f"  {str(name).replace('_', ' '):18} {sizes(nbytes):>24}  {nbytes / most['allocated_peak_bytes']:6.1%}")
    typer.echo(f"\n  {'bytes':>24}  blocks  category         layer                    microbatch  made by (rule)")
    for row in held.head(top).itertuples():
        known = [None if pd.isna(v) else clean(v, 40) for v in (row.layer, row.microbatch, row.maker)]
        path = (known[0] or "-") + ("" if pd.isna(row.sublayer) else f".{clean(row.sublayer, 20)}")
        blocks = "-" if pd.isna(row.blocks) else row.blocks
        typer.echo(f"  {sizes(row.nbytes):>24}  {blocks:>6}  {row.category:15}  {path:23}  {known[1] or '-':>10}  {known[2] or '-'} ({row.rule})")
    if len(held) > top:
        typer.echo(f"  … {len(held) - top} smaller groups, {sizes(int(held['nbytes'].iloc[top:].sum()))} in all: --top {len(held)} lists them")
