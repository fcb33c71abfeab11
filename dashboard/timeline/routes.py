"""Which addresses does the timeline page ask? A layout once, then windows, searches, single events, and a window as a file."""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from flask import Blueprint, Response, request

from dashboard.timeline.asked import between, whole
from dashboard.timeline.instances import instance_of
from dashboard.timeline.runs import CACHE_BYTES, Library, Opened, UnknownRun
from tracekit.errors import InputError, UsageError
from tracekit.timeline.asked import ranks_in
from tracekit.timeline.export import FORMS, export
from tracekit.timeline.run import RANKS, Run
from tracekit.timeline.search import MOST_MATCHES, details, search
from tracekit.timeline.window import MOST_PIXELS, window
from tracekit.wording import ranks as rank_list

_KEY = tuple[Any, ...]
_WORTH_PACKING = 2_000
#: Files that are written at a time: each of the largest takes some 130 MB, and they share one interpreter anyway.
_WRITTEN_AT_ONCE = 2
#: Larger whole numbers lose digits where JavaScript reads them, so they are sent as text.
_EXACT = 2**53 - 1
_TYPES = {"json.gz": "application/gzip", "pftrace": "application/octet-stream"}


def blueprint(library: Library, limit: int = CACHE_BYTES) -> Blueprint:
    """The routes over a library.

    Args:
        library: the stored runs.
        limit: bytes that answers may take in memory.
    """
    made = Blueprint("timeline", __name__, url_prefix="/api/runs/<run_id>/timeline")
    opened = Opened(library, limit)
    writing = threading.BoundedSemaphore(_WRITTEN_AT_ONCE)

    def answers(answer: Callable[[Run, _KEY, str], Response]) -> Callable[..., Response]:
        """The route with its run opened; what is wrong in one line, with the status that says whose fault it is."""

        @wraps(answer)
        def wrapped(run_id: str) -> Response:
            try:
                run, key = opened.run(run_id)
                try:
                    return answer(run, key, run_id)
                finally:
                    run.release()
            except UnknownRun:
                return _refused(404, "there is no such run")
            except UsageError as error:
                return _refused(400, str(error))
            except InputError as error:
                return _refused(409, error.reason)

        return wrapped

    @made.get("/layout")
    @answers
    def layout(run: Run, key: _KEY, run_id: str) -> Response:
        """Ranks, lanes, steps, sorts and the extent."""
        return _json(opened.cache.get(("layout", *key), lambda: _packed(run.layout()), len))

    @made.get("")
    @answers
    def drawn(run: Run, key: _KEY, run_id: str) -> Response:
        """What to draw between two times."""
        (start, end), ranks = between(request.args), _ranks(run)
        view, pixels = request.args.get("view", RANKS), whole(request.args, "px", 1, MOST_PIXELS, 1200)
        start, end, pixels = quantised(start, end, pixels)
        asked = (start, end, pixels, view, ranks)
        return _json(opened.cache.get(("window", *key, *asked), lambda: _packed(window(run, *asked).to_dict()), len))

    @made.get("/search")
    @answers
    def found(run: Run, key: _KEY, run_id: str) -> Response:
        """Slices by a part of their name."""
        at = whole(request.args, "at", -(10**18), 10**18, 0)
        most = whole(request.args, "most", 1, MOST_MATCHES, 50)
        backwards = request.args.get("back") == "1"
        answer = search(run, request.args.get("q", ""), _ranks(run), at=at, backwards=backwards, most=most)
        return _json(_packed(answer.to_dict()))

    @made.get("/event")
    @answers
    def event(run: Run, key: _KEY, run_id: str) -> Response:
        """All that is known of one event, and of the collective it is part of."""
        place = [whole(request.args, name, 0, 2**31 - 1, 0 if name == "capture" else None) for name in ("rank", "capture", "event")]
        about = details(run, *place)
        analysis = opened.analysis(run_id)
        about["instance"] = None if analysis is None else instance_of(analysis, run, about)
        about["columns"] = {name: str(v) if isinstance(v, int) and abs(v) > _EXACT else v for name, v in about["columns"].items()}
        return _json(_packed(about))

    @made.get("/slice")
    @answers
    def cut(run: Run, key: _KEY, run_id: str) -> Response:
        """A window as a file, to save or to hand to Perfetto."""
        (start, end), ranks, form = between(request.args), _ranks(run), request.args.get("form", "json.gz")
        with writing:
            data = export(run, start, end, ranks, form)
        named = rank_list(run.ranks if ranks is None else ranks).replace(", ", "+")[:60]
        name = re.sub(r"[^A-Za-z0-9._+-]", "-", f"{run_id[:40]}-ranks-{named}-{start}-{end}.{form}")
        headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"}
        return Response(data, mimetype=_TYPES[form], headers=headers)

    return made


def _ranks(run: Run) -> frozenset[int] | None:
    """The ranks that are asked for and that the run has; None where all are."""
    wanted = ranks_in(request.args.get("ranks"))
    return None if wanted is None or wanted.issuperset(run.ranks) else wanted.intersection(run.ranks)


def quantised(start: int, end: int, pixels: int) -> tuple[int, int, int]:
    """A window on a grid, at most an eighth wider, so that neighbouring requests share one answer.

    >>> quantised(1_003, 2_001, 1_190)
    (992, 2016, 1216)
    """
    grid = 1 << max((end - start).bit_length() - 5, 0)
    return start // grid * grid, -(-end // grid) * grid, min(-(-pixels // 64) * 64, MOST_PIXELS)


def _packed(value: dict[str, Any]) -> bytes:
    text = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    return gzip.compress(text, 4) if len(text) > _WORTH_PACKING else text


def _json(data: bytes) -> Response:
    answer = Response(data, mimetype="application/json")
    if data[:2] == b"\x1f\x8b":
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            answer.headers["Content-Encoding"] = "gzip"
        else:
            answer.set_data(gzip.decompress(data))
        answer.headers["Vary"] = "Accept-Encoding"
    return answer


def _refused(status: int, reason: str) -> Response:
    return Response(json.dumps({"error": reason[:500]}), status=status, mimetype="application/json")


__all__ = ["FORMS", "blueprint", "quantised"]
