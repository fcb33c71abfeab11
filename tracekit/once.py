"""How is something that many ask of one frozen object made only once?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Once:
    """A frozen object that remembers what was made of it.

    The memory is no part of what the object is: it is not compared, a changed copy begins with none, and none is pickled.
    """

    _made: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What is made of this object, made once; whoever asks again gets the same, and changes nothing in it."""
        if name not in self._made:
            self._made[name] = make()
        made: T = self._made[name]
        return made

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: everything but the memory."""
        return {**self.__dict__, "_made": {}}
