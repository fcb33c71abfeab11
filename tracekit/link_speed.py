"""How fast are the links that a user names? ``450``, or by mesh axis ``tp=450,dp=50``: GB/s (1e9) of bus bandwidth per GPU.

No trace tells it and no table of hardware is kept here: a ceiling that nobody gave is not drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tracekit.errors import UsageError
from tracekit.vocabulary import Axis

#: Key of the speed that holds for every axis that is not named.
ANY = "any"
#: Axes that a speed can be given for; ``dp`` stands for every data axis that is not named itself.
AXES = (*(str(axis) for axis in Axis), "dp", "dp_cp", "world")


def link_speeds(given: float | str | Mapping[str, float] | None) -> dict[str, float]:
    """Speed by axis, checked.

    Args:
        given: one speed for all links; a speed per axis, as a mapping or as the text of ``--link-gbps``; None: nothing is known.

    Returns:
        axis (or ``ANY``) -> GB/s; empty where nothing was given.

    Raises:
        UsageError: a speed is no positive number, an axis is unknown or named twice.

    >>> link_speeds("450"), link_speeds("tp=450,dp=50"), link_speeds({"tp": 450}), link_speeds(None)
    ({'any': 450.0}, {'tp': 450.0, 'dp': 50.0}, {'tp': 450.0}, {})
    """
    if given is None:
        return {}
    pairs: list[tuple[str, object]]
    if isinstance(given, Mapping):
        pairs = list(given.items())
    elif isinstance(given, str):
        parts = [part.strip().partition("=") for part in given.split(",")]
        pairs = [(axis.strip(), speed.strip()) if equals else (ANY, axis.strip()) for axis, equals, speed in parts]
    else:
        pairs = [(ANY, given)]
    speeds: dict[str, float] = {}
    for axis, value in pairs:
        if axis not in (ANY, *AXES):
            raise UsageError(f"link speed: there is no mesh axis {axis!r}; name one of {', '.join(AXES)}, as in tp=450,dp=50")
        if axis in speeds:
            raise UsageError(f"link speed: {'a speed for all axes' if axis == ANY else axis} is given twice")
        speeds[axis] = _speed(value)
    return speeds


def speed_of(speeds: Mapping[str, float], axis: object) -> float | None:
    """Speed of the links of one axis; None where none was given.

    >>> speed_of({"dp": 50.0}, "dp_shard"), speed_of({"dp": 50.0}, "tp"), speed_of({"any": 9.0}, None)
    (50.0, None, 9.0)
    """
    name = axis if isinstance(axis, str) else ""
    family = "dp" if name.startswith("dp_") else name
    return speeds.get(name, speeds.get(family, speeds.get(ANY)))


def _speed(value: object) -> float:
    try:
        speed = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        speed = math.nan
    if isinstance(value, bool) or not math.isfinite(speed) or speed <= 0:
        raise UsageError(f"link speed: {value!r} is no speed; give GB/s per GPU above 0, as in 450 or tp=450,dp=50")
    return speed
