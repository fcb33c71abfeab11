"""tracekit: where the time and the memory went in split-up training, measured from traces.

>>> import tracekit
>>> tracekit.analyze("runs/tp").to_dict()["metrics"]["step_time"]["summary"]  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["Analysis", "InputError", "TracekitError", "__version__", "analyze"]

if TYPE_CHECKING:
    from tracekit.analysis import Analysis, analyze
    from tracekit.errors import InputError, TracekitError


def __getattr__(name: str) -> Any:
    """Load the public names when they are first used: ``import tracekit`` costs no pandas."""
    if name in ("Analysis", "analyze"):
        from tracekit import analysis

        return getattr(analysis, name)
    if name in ("InputError", "TracekitError"):
        from tracekit import errors

        return getattr(errors, name)
    raise AttributeError(f"module 'tracekit' has no attribute {name!r}")
