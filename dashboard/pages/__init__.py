"""Which pages are there? One module each; ``app.pages`` lists them."""

from __future__ import annotations

#: Metrics that have a page of their own, or a place on one; all others stand on the overview.
OWN = frozenset({"collectives", "straggler", "clock", "links", "flight_recorder", "records", "bandwidth", "operators", "pipeline", "memory", "recompute"})
