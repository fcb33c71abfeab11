"""How does a figure look on a dark page? The house figure with its greys and whites exchanged, nothing drawn anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit.figures import lateness, layers, theme

#: Surface of the cards of dark pages, as in ``assets/pages.css``.
DARK_SURFACE = "#1C222B"

#: Colour of the house on paper -> the same on a dark surface. Colours that mean something (work, waiting, early, late) stay.
_DARK = {
    theme.INK: "#E4E9F0",
    theme.SOFT: "#A4B0BF",
    theme.FAINT: "#333C48",
    theme.GREY: "#7A8696",
    "WHITE": DARK_SURFACE,
    "#FFFFFF": DARK_SURFACE,
    lateness.UNRESOLVED: "#566170",
    lateness.ABSENT: "#262E38",
    lateness.EARLY: "#5B9BD5",
    lateness.LATE: "#F0566B",
    layers.HIDDEN: "#6B5442",
    "#F1E3E5": "#3D3237",
}
_MAPPED = {key.upper(): value for key, value in _DARK.items()}
#: White letters stand on bars of this grey: it turns less light than letters of it do.
_BARS = _MAPPED | {theme.SOFT.upper(): "#5F6E80"}
#: Letters on a bar stand on the bar's colour, which stays.
_ON_BARS = frozenset({"insidetextfont"})
#: What holds data or words, never a colour; large, so it is not searched.
_DATA = frozenset({"x", "y", "z", "base", "customdata", "text", "hovertext", "hovertemplate", "name", "bdata", "ids", "labels", "parents"})


def restyled(figure: dict[str, Any], scheme: str) -> dict[str, Any]:
    """A figure as JSON knows it, for a page that is ``light`` or ``dark``; the argument stays as it is.

    >>> restyled({"data": [], "layout": {"paper_bgcolor": "white"}}, "dark")["layout"]["paper_bgcolor"]
    '#1C222B'
    """
    if scheme != "dark":
        return figure
    return {
        "data": [_walk(trace, _DATA, _BARS if trace.get("type") == "bar" else _MAPPED) for trace in figure.get("data", ())],
        "layout": _words(_walk(figure.get("layout", {}), frozenset(), _MAPPED)),
    }


def _walk(node: Any, skipped: frozenset[str], colours: Mapping[str, str]) -> Any:
    if isinstance(node, dict):
        return {
            key: _letters(value) if key == "textfont" else value if key in _ON_BARS or key in skipped else _walk(value, skipped, colours)
            for key, value in node.items()
        }
    if isinstance(node, list):
        return [_walk(value, skipped, colours) for value in node]
    return colours.get(node.upper(), node) if isinstance(node, str) and len(node) <= 7 else node


def _letters(font: Any) -> Any:
    """Letters beside marks turn with the page; white ones stand on a mark."""
    if not isinstance(font, dict) or not isinstance(font.get("color"), str) or font["color"].upper() in ("WHITE", "#FFFFFF"):
        return font
    return {**font, "color": _MAPPED.get(font["color"].upper(), font["color"])}


def _words(layout: dict[str, Any]) -> dict[str, Any]:
    """Colours inside tick labels (the name of the rank that stands out)."""
    out = dict(layout)
    for key, axis in layout.items():
        if key.startswith("yaxis") and isinstance(axis, dict) and isinstance(axis.get("ticktext"), list):
            out[key] = {**axis, "ticktext": [_coloured(text) for text in axis["ticktext"]]}
    return out


def _coloured(text: Any) -> Any:
    return text.replace(lateness.LATE, _DARK[lateness.LATE]) if isinstance(text, str) and text.startswith("<span style=") else text
