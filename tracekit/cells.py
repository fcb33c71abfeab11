"""Which text may stand in a cell of a CSV file? None that a spreadsheet would run as a formula."""

from __future__ import annotations

import re

#: Signs that begin a formula (the wide ones in East Asian spreadsheets), and characters that are skipped on the way to one.
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n")
#: A formula behind what a spreadsheet may take for the end of a cell: in half of Europe that is a semicolon, quoted or not.
_BEHIND = re.compile(r"""([;\t\r\n]["']*)(?=[=+\-@＝＋－＠])""")


def safe(text: str) -> str:
    """The text, with an apostrophe in front of what could be a formula: names in a trace are strangers' text.

    >>> safe("=cmd|' /C calc'!A0"), safe("a;=1+1"), safe("layers.0")
    ("'=cmd|' /C calc'!A0", "a;'=1+1", 'layers.0')
    """
    if ";" in text or "\t" in text or "\n" in text or "\r" in text:
        text = _BEHIND.sub(r"\1'", text)
    return "'" + text if text.startswith(_FORMULA) else text
