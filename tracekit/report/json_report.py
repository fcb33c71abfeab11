"""How does the report document become JSON that every parser takes? No NaN, no Infinity; integers stay integers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit.analysed import Analysed


def render(analysis: Analysed) -> str:
    """The document as JSON text, one line end at the end.

    Raises:
        ValueError: the document holds NaN or Infinity: null is how unknown is written, so this is a bug of the metric
            that the message names.
    """
    return dumps(analysis.to_dict())


def dumps(document: Mapping[str, Any]) -> str:
    """Strict JSON of a document; numpy's scalars are written as Python's."""
    return json.dumps(_plain(document, "report"), allow_nan=False, indent=1, ensure_ascii=False) + "\n"


def _plain(value: Any, path: str) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v, f"{path}.{k}") for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v, path) for v in value]
    if isinstance(value, (set, frozenset)):
        return [_plain(v, path) for v in sorted(value)]
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if hasattr(value, "item"):
        return _plain(value.item(), path)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{path} is {value}; unknown must be null")
        return value
    raise ValueError(f"{path} holds a {type(value).__name__}, which JSON has no place for")
