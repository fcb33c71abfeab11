"""A server that only reads: ``python -m tests.dashboard.store.serving ROOT`` runs until it is killed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from dashboard.jobs.supervisor import Supervisor
from dashboard.library import Library
from dashboard.settings import Settings


def main() -> None:
    """Read whatever is queued."""
    Supervisor(Library(Settings(Path(sys.argv[1]), min_free_bytes=0, readers=1))).start()
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
