"""What do runs have to be compared with? Snapshots that are kept by setup, scenario and commit, and nobody can half write."""

from __future__ import annotations

from tracekit.baselines.entries import Entry
from tracekit.baselines.store import Store, open_store

__all__ = ["Entry", "Store", "open_store"]
