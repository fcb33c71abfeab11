"""What was made already? A least-recently-used cache bounded by bytes, in which everything is made by one thread only."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")

#: What an entry costs beside its own bytes: key, lock, links.
OVERHEAD = 256


class ByteCache:
    """Values by key, at most ``limit`` bytes of them; the least recently used go first.

    Fifty readers who open the same page at once cost one drawing: the first makes it, the others wait for it.
    A value that is larger than the whole cache is handed out and not kept. What fails is not kept either.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()
        self._bytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes that are held."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: Hashable, make: Callable[[], T], size: Callable[[T], int]) -> T:
        """The value of a key; made where it is not held.

        Args:
            key: what it is of; must change when what it is made from changes.
            make: makes it; what it raises is raised here.
            size: bytes that a value takes.
        """
        found = self._find(key)
        if found is not None:
            value: T = found[0]
            return value
        with self._lock:
            own = self._making.setdefault(key, threading.Lock())
        with own:
            found = self._find(key)
            if found is not None:
                return found[0]  # type: ignore[no-any-return]  # a key is always of one type
            try:
                value = make()
            finally:
                with self._lock:
                    self._making.pop(key, None)
            self._keep(key, value, size(value) + OVERHEAD)
            return value

    def _find(self, key: Hashable) -> tuple[Any, int] | None:
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def _keep(self, key: Hashable, value: Any, nbytes: int) -> None:
        if nbytes > self._limit:
            return
        with self._lock:
            old = self._held.pop(key, None)
            self._bytes += nbytes - (old[1] if old else 0)
            self._held[key] = (value, nbytes)
            while self._bytes > self._limit:
                _, (_, gone) = self._held.popitem(last=False)
                self._bytes -= gone
