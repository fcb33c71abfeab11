"""How is the dashboard started? ``tracekit serve``"""

from __future__ import annotations

import json as text
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.screen import say
from tracekit.errors import UsageError
from tracekit.reading import DEFAULT

_SIZE = re.compile(r"^(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[KMGT]?)(?:i?B)?$", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def serve(
    root: Annotated[Path, typer.Option(metavar="DIR", help="Folder of everything that is stored; made if need be.")] = Path("tracekit-store"),
    host: Annotated[str, typer.Option(help="Address to listen at. Beyond this machine only with --token or --proxy-header.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0: any that is free.")] = 8900,
    token: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="What visitors must know; auto makes one.", show_default="$TRACEKIT_TOKEN, else nobody is asked")
    ] = None,
    proxy_header: Annotated[
        str | None, typer.Option(metavar="NAME", help="Header in which a proxy on this machine names the user it signed in.", show_default=False)
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Host name under which the server may be asked for besides its own.", show_default=False)
    ] = None,
    database: Annotated[str | None, typer.Option(metavar="URL", help="Postgres, such as postgresql://user@host/name.", show_default="SQLite in --root")] = None,
    quota: Annotated[str | None, typer.Option(metavar="SIZE", help="Most that all runs may take, such as 500G.", show_default="what the disk holds")] = None,
    user_quota: Annotated[str | None, typer.Option(metavar="SIZE", help="Most that one user's runs may take.", show_default="no limit")] = None,
    max_upload: Annotated[str | None, typer.Option(metavar="SIZE", help="Most that one file may have.", show_default="64G")] = None,
    keep_free: Annotated[str | None, typer.Option(metavar="SIZE", help="Space on the disk that stays free.", show_default="2G")] = None,
    ttl_days: Annotated[float | None, typer.Option(metavar="DAYS", help="Delete runs that nobody opened for so long.", show_default="kept")] = None,
    workers: Annotated[int, typer.Option(min=0, help="Runs that are read at the same time.")] = 1,
    job_memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Most memory of each process that reads.", show_default="16G")] = None,
    job_seconds: Annotated[float | None, typer.Option(min=1, metavar="SECONDS", help="Longest time that reading a run may take.", show_default="3600")] = None,
    max_bytes: Annotated[str | None, typer.Option(metavar="SIZE", help="Most that a file may unpack to.", show_default="8G")] = None,
    max_ratio: Annotated[int, typer.Option(min=1, help="Most bytes it may unpack to per packed byte (past 64 MiB).")] = DEFAULT.max_ratio,
    max_events: Annotated[int, typer.Option(min=1, help="Most records of one file.")] = DEFAULT.max_events,
    max_members: Annotated[int, typer.Option(min=1, help="Most entries of an archive, folders and links too.")] = DEFAULT.max_members,
    json: Annotated[bool, typer.Option("--json", help="Write the address as one JSON document to stdout once it answers.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Serve the dashboard: drop traces on a page, get answers.

    Listens on this machine only, unless told otherwise; beyond it, visitors must know a token, or a proxy must name
    them. Everything stays in --root, and nothing is asked of any other host. Ctrl-C ends it; what was being read then
    goes on at the next start.

    \b
    Examples:
      tracekit serve
      tracekit serve --root /data/traces --host 0.0.0.0 --token auto
      tracekit serve --database postgresql://tracekit@db/tracekit --quota 2T
    """
    try:
        from dashboard.security import new_token
        from dashboard.serve import serve as run
        from dashboard.settings import Settings
    except ModuleNotFoundError as error:
        raise UsageError(f"the dashboard needs {error.name}: pip install 'tracekit-train[dashboard]'") from error

    if token is None and (token := os.environ.get("TRACEKIT_TOKEN")) == "":  # somebody meant to ask for it
        raise UsageError("$TRACEKIT_TOKEN is empty; unset it to ask nobody, or give --token auto")
    known = {
        "quota_bytes_total": size(quota),
        "quota_bytes_per_user": size(user_quota),
        "max_upload_bytes": size(max_upload),
        "min_free_bytes": size(keep_free),
        "ttl_days": ttl_days,
        "job_memory_bytes": size(job_memory),
        "job_seconds": job_seconds,
    }
    unpacked = size(max_bytes)
    settings = Settings(
        root=root,
        host=host,
        port=port,
        token=new_token() if token == "auto" else token,
        proxy_header=proxy_header,
        hosts=tuple(allow_host or ()),
        database_url=database,
        workers=workers,
        reading=replace(
            Settings.reading,
            max_bytes=DEFAULT.max_bytes if unpacked is None else unpacked,
            max_ratio=max_ratio,
            max_events=max_events,
            max_members=max_members,
        ),
        **{name: value for name, value in known.items() if value is not None},  # type: ignore[arg-type]
    )

    def ready(address: str) -> None:
        if json:
            typer.echo(text.dumps({"url": address, "root": str(settings.root)}))
        else:
            typer.echo(f"tracekit serves at {address}")
            say("Ctrl-C ends it")

    run(settings, ready)


def size(given: str | None) -> int | None:
    """Bytes of a size such as 500G; units are binary.

    Raises:
        UsageError: it is none.

    >>> size("1.5K"), size("2 GiB"), size(None)
    (1536, 2147483648, None)
    """
    if given is None:
        return None
    match = _SIZE.match(given.strip())
    if match is None:
        raise UsageError(f"{given!r} is no size; write a number and K, M, G or T, such as 500G")
    return int(float(match["number"]) * _UNITS[match["unit"].upper()])
