"""What does ``python -m tracekit`` do? The same as the command ``tracekit``."""

from __future__ import annotations

import sys

from tracekit.cli import main

if __name__ == "__main__":
    sys.exit(main())
