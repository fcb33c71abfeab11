"""Which text may stand in a cell of a CSV file? None that a spreadsheet would run as a formula."""

from __future__ import annotations

#: First characters of a cell that spreadsheets run as a formula, or skip on the way to one.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def safe(text: str) -> str:
    """The text, with an apostrophe in front where it could be a formula: names in a trace are strangers' text.

    >>> safe("=cmd|' /C calc'!A0"), safe("layers.0")
    ("'=cmd|' /C calc'!A0", 'layers.0')
    """
    return "'" + text if text.startswith(_FORMULA) else text
