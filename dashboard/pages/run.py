"""What is at the bare address of a run? Its overview."""

from __future__ import annotations

from dashboard.pages.overview import layout

__all__ = ["layout"]
