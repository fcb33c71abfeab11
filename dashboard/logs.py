"""How does the log reach whoever started the server? On stderr, where no name that a visitor sent moves a cursor or passes for a line of ours."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class Legible(logging.Formatter):
    """Lines of printable characters; what follows the first of a record is indented.

    >>> Legible().format(logging.makeLogRecord({"msg": "asked for /\\x1b[2J\\nall is well"}))
    'asked for /�[2J\\n    all is well'
    """

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record with its traceback."""
        lines = super().format(record).split("\n")
        return "\n    ".join("".join(c if c.isprintable() or c == "\t" else "�" for c in line) for line in lines)


@contextmanager
def legible() -> Iterator[None]:
    """Write what is logged as long as this lasts, unless whoever embeds the server has said where it goes."""
    if logging.root.handlers:
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(Legible())
    logging.root.addHandler(handler)
    try:
        yield
    finally:
        logging.root.removeHandler(handler)
