"""How is a comparison (``tracekit.comparison/1``) told? One file per reader: a person at a terminal, a pull request, a CI system, a browser.

``terminal``, ``markdown``, ``github``, ``gitlab``, ``junit`` and ``html`` each render the one document; ``words`` is what they share.
"""

from __future__ import annotations

from tracekit.report.regression.terminal import renderable, text
from tracekit.report.regression.words import is_news

__all__ = ["is_news", "renderable", "text"]
