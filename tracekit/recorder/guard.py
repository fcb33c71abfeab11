"""What happens when the recorder itself fails? It says so once, switches itself off, and the training goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType

logger = logging.getLogger("tracekit.recorder")


class Guard:
    """Stands between the recorder and the training loop.

    Used as a context manager around every entry point and, through :meth:`fail`, by the hooks. The first error is
    reported as one warning of the logger ``tracekit.recorder`` (which ends on stderr unless logging is set up
    otherwise), ``switch_off`` is called once, and everything after is silent. Errors that are no ``Exception``
    (an interrupt from the keyboard) pass through.
    """

    def __init__(self, switch_off: Callable[[], None]) -> None:
        self._switch_off = switch_off
        self._said: set[str] = set()
        self.failed = False

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            return False
        self.fail(error)
        return True

    def fail(self, error: Exception) -> None:
        """Report the first failure and switch the recorder off; later ones only reach the debug log."""
        if self.failed:
            logger.debug("after the recorder was switched off: %r", error)
            return
        self.failed = True
        cause = " ".join(str(error).split()) or "no message"
        logger.warning("recording stopped, training goes on: %s: %s", type(error).__name__, cause)
        try:
            self._switch_off()
        except Exception as second:
            logger.debug("while switching the recorder off: %r", second)

    def notice(self, message: str) -> None:
        """Say something that is missing but stops nothing; each message once."""
        if message not in self._said:
            self._said.add(message)
            logger.warning("%s", message)
