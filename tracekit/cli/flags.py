"""How do several commands share flags? A function whose parameters they are stands for one parameter of each command."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any


def instead_of(parameter: str, asked: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that gives a command the flags of ``asked`` in the place of one parameter, which takes what ``asked`` makes of them."""
    flags = inspect.signature(asked, eval_str=True).parameters

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(command, eval_str=True)

        @wraps(command)
        def with_flags(**given: Any) -> Any:
            made = asked(**{name: given.pop(name) for name in flags})
            return command(**given, **{parameter: made})

        parameters = [p for one in own.parameters.values() for p in (flags.values() if one.name == parameter else (one,))]
        with_flags.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        with_flags.__annotations__ = {p.name: p.annotation for p in parameters}
        return with_flags

    return decorate
