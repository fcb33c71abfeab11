"""How is a number or a name from a trace written for people?

The unit is read from the end of the column's name (``_ns``, ``_bytes``, ``_ratio``, ``_gbps``): numbers stay integers in
ns and bytes up to here. None is written ``unknown``. Names come from trace files and are not trusted: ``clean`` takes the
control characters out (a terminal would obey them), every renderer then escapes for its own language.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

UNKNOWN = "unknown"
#: A ratio that percent with one digit after the point would write as nothing.
_LITTLE = 0.0005

_TIME = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_SIZE = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_DECIMAL_SIZE = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
_FLOPS = ((1e18, "EFLOP"), (1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1.0, "FLOP"))
#: Of numbers in GB/s (1e9); gloo on one machine moves single MB/s.
_RATE = ((1.0, "GB/s"), (1e-3, "MB/s"))
_UNITS = {"_ns": _TIME, "_bytes": _SIZE}


def clean(text: object, limit: int = 120) -> str:
    """One line of printable text: control, format and surrogate characters become ``�``, long text is cut.

    >>> clean("layers.0\\x1b[31m")
    'layers.0�[31m'
    """
    line = str(text)
    if len(line) > limit:
        line = line[: limit - 1] + "…"
    # what is printable, nearly everything, holds none of them
    if line.isprintable():
        return line
    return line.translate({ord(c): "�" for c in set(line) if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co")})


def no_command(text: str) -> str:
    """Lines in which a CI runner finds no command: ``::`` at a line's start, ``##[`` anywhere.

    >>> no_command("a ##[error]b")
    'a # #[error]b'
    """
    text = text.replace("##[", "# #[")
    return re.sub(r"^(\s*)::", r"\1: :", text, flags=re.MULTILINE)


def duration(ns: float | None) -> str:
    """A time in the unit that suits it.

    >>> duration(1_234_567), duration(None)
    ('1.23 ms', 'unknown')
    """
    return _scaled(ns, _TIME)


def size(count: float | None) -> str:
    """Bytes in a binary unit.

    >>> size(3 * 2**20)
    '3.00 MiB'
    """
    return _scaled(count, _SIZE)


def sizes(count: float | None) -> str:
    """Bytes in a binary unit, and in the decimal one that vendors and other tools write.

    >>> sizes(7 * 2**29), sizes(512), sizes(None)
    ('3.50 GiB (3.76 GB)', '512 B', 'unknown')
    """
    binary = size(count)
    return binary if binary.endswith(" B") or binary == UNKNOWN else f"{binary} ({_scaled(count, _DECIMAL_SIZE)})"


def flops(count: float | None) -> str:
    """Floating-point operations in a decimal unit.

    >>> flops(312e12), flops(None)
    ('312 TFLOP', 'unknown')
    """
    return _scaled(count, _FLOPS)


def percent(ratio: float | None) -> str:
    """A ratio as percent, one digit after the point; what is not nothing is never written 0.

    >>> percent(0.3043), percent(0.0002), percent(-0.0002), percent(0.0)
    ('30.4 %', '< 0.1 %', '> -0.1 %', '0.0 %')
    """
    if ratio is None or not math.isfinite(ratio):
        return UNKNOWN
    if 0 < abs(ratio) < _LITTLE:
        return "< 0.1 %" if ratio > 0 else "> -0.1 %"
    return f"{100 * ratio:.1f} %"


def signed_percent(ratio: float) -> str:
    """A change as percent with its sign; what is not nothing is never written 0.

    >>> signed_percent(0.071), signed_percent(-0.0002), signed_percent(0.0)
    ('+7.1 %', '> -0.1 %', '+0.0 %')
    """
    return percent(ratio) if 0 < abs(ratio) < _LITTLE else f"{100 * ratio:+.1f} %"


def signed(name: str, value: float | None) -> str:
    """A change with its sign, by the unit in its name.

    >>> signed("change_ns", -5e6), signed("change_ns", 0), signed("change_ns", None)
    ('−5.00 ms', '0 ns', 'unknown')
    """
    return UNKNOWN if value is None else ("+" if value > 0 else "−" if value < 0 else "") + scalar(name, abs(value))


def scalar(name: str, value: Any) -> str:
    """One value of a summary, by the unit in its name."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        if name.endswith("_ns") and not name.endswith("ts_ns"):
            return duration(value)
        if name.endswith("_bytes") or name == "nbytes":
            return sizes(value)
        if name.endswith("_ratio") or name == "bubble_over_ideal":
            return percent(value)
        if name.endswith(("_flops", "_flops_per_s")):
            return flops(value) + ("/s" if name.endswith("_per_s") else "")
        if name.endswith("_gbps"):
            factor, unit = _unit(value, _RATE)
            return f"{_digits(value / factor)} {unit}"
        return f"{int(value):,}" if isinstance(value, int) or value.is_integer() else _digits(value)
    if isinstance(value, (list, tuple)):
        return clean(", ".join(map(str, value))) or "none"
    if isinstance(value, dict):
        return clean(", ".join(f"{k} {v}" for k, v in value.items())) or "none"
    return clean(value)


def label(name: str) -> str:
    """A field's name in words, without its unit; what is in words already keeps its underscores (``dp_replicate``).

    >>> label("exposed_comm_ns")
    'exposed comm'
    """
    for suffix in ("_ts_ns", "_ns", "_bytes", "_ratio", "_gbps", "_ppm", "_per_s"):
        if name.endswith(suffix) and len(name) > len(suffix):
            name = name[: -len(suffix)]
            break
    return clean(name if " " in name else name.replace("_", " "))


def column(name: str, values: Sequence[Any]) -> tuple[str, list[str]]:
    """Header and cells of one table column, all cells in one unit, which the header names; a cell too small for it names its own.

    >>> column("wait_ns", [1_500_000, None, 20])
    ('wait (ms)', ['1.500', 'unknown', '20 ns'])
    """
    suffix = next((s for s in _UNITS if name.endswith(s) or name == "nbytes" == "n" + s[1:]), None)
    known = [abs(v) for v in values if _number(v)]
    if suffix:
        factor, unit = _unit(max(known), _UNITS[suffix]) if any(known) else _UNITS[suffix][-3 if suffix == "_bytes" else 1]
        digits = 0 if factor == 1 else _places(max(known, default=0) / factor)
        return f"{label(name)} ({unit})", [_in(v, factor, digits, _UNITS[suffix]) if _number(v) else scalar(name, v) for v in values]
    if name.endswith(("_flops", "_flops_per_s")):
        return label(name), [scalar(name, v) for v in values]
    if name.endswith("_gbps"):
        factor, unit = _unit(max(known, default=1), _RATE)
        return f"{label(name)} ({unit})", [_digits(v / factor) if _number(v) else scalar(name, v) for v in values]
    mixed = not name.endswith("_ratio") and name != "bubble_over_ideal" and not all(float(v).is_integer() for v in known)
    return label(name), [_digits(v) if mixed and isinstance(v, float) and _number(v) else scalar(name, v) for v in values]


def _in(value: float, factor: float, digits: int, units: tuple[tuple[float, str], ...]) -> str:
    """A number in a column's unit, or in its own where nothing of it would be left."""
    text = f"{value / factor:,.{digits}f}"
    return "0" if value == 0 else text if text.strip("-0.") else _scaled(value, units)


def plural(count: int, word: str) -> str:
    """A count and its word.

    >>> plural(1, "rank"), plural(2, "rank")
    ('1 rank', '2 ranks')
    """
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def ranks(numbers: Iterable[int]) -> str:
    """Rank numbers, runs of them joined.

    >>> ranks([0, 1, 2, 3, 8])
    '0-3, 8'
    """
    runs: list[list[int]] = []
    for n in sorted(set(numbers)):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "none"


#: Parts of the step budget that are the work itself, in the order of a step; all others are cost or loss.
WORK = ("ideal_compute", "forward", "backward", "optimizer", "other_compute", "compute", "graph")


def part(name: object, axis: object = None) -> str:
    """A part of the step budget in words.

    >>> part("comm_wait", "tp"), part("comm_wait", "pp"), part("other_compute")
    ('waiting in tp communication', 'waiting in pp communication', 'other compute')
    """
    raw = str(name)
    where = f"{clean(axis)} communication" if axis else "communication"
    words = {
        "recompute": "recomputation",
        "comm_wait": f"waiting in {where}",
        "comm_transfer": f"moving bytes in {where}",
        "comm_unsplit": f"exposed {where}",
        "exposed_comm": f"exposed {where}",
        "copies": "exposed copies",
        "bubble": "pipeline bubble",
        "input_wait": "waiting for input data",
        "launch_gap": "launch gaps",
        "graph": "whole CUDA graphs, not divided",
    }
    return words.get(raw) or (f"{label(raw)} ({clean(axis)})" if axis else label(raw))


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _unit(value: float, units: tuple[tuple[float, str], ...]) -> tuple[float, str]:
    return next((u for u in units if abs(value) >= u[0]), units[-1])


def _scaled(value: float | None, units: tuple[tuple[float, str], ...]) -> str:
    if value is None or not math.isfinite(value):
        return UNKNOWN
    factor, unit = _unit(value, units)
    return f"{value:,.0f} {unit}" if factor == 1 else f"{_digits(value / factor)} {unit}"


def _places(value: float) -> int:
    return 3 if value < 10 else 2 if value < 100 else 1


def _digits(value: float) -> str:
    """Three significant digits, never an exponent for everyday numbers."""
    if value == 0:
        return "0"
    if abs(value) < 0.001:
        return f"{value:.2e}"
    return f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def span_of_layers(first: str | None, last: object) -> str | None:
    """The layers that one bucket of gradients holds, as one label.

    >>> span_of_layers("layers.0", "layers.3"), span_of_layers("head", None)
    ('layers.0 … layers.3', 'head')
    """
    return first if first is None or not isinstance(last, str) or first == last else f"{first} … {last}"
