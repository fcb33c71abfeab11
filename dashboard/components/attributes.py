"""How are attributes written that are no Python names? ``aria-…`` and ``data-…`` of a component, as keywords."""

from __future__ import annotations

from typing import Any


def aria(**said: str) -> dict[str, Any]:
    """What is said of a component to those who do not see it.

    >>> aria(label="Pages")
    {'aria-label': 'Pages'}
    """
    return {f"aria-{name}": value for name, value in said.items()}


def data(**held: str) -> dict[str, Any]:
    """What a component holds for the scripts of the page.

    >>> data(run="7")
    {'data-run': '7'}
    """
    return {f"data-{name}": value for name, value in held.items()}
