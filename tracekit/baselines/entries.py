"""What is said of a kept run? Which snapshot, of which scenario, setup and commit, when, and whether a person accepted it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from tracekit.errors import InputError

ENTRY_SCHEMA = "tracekit.baseline/1"
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Entry:
    """One kept run.

    Attributes:
        snapshot: SHA-256 of its snapshot's text.
        scenario: what it is a run of.
        scope: short name of its fingerprint.
        commit: of the code that ran; runs of one commit belong together.
        created: when it was kept, Unix-epoch ns.
        reason: why a person accepted it as the new normal; None where nobody had to.
        name: of its file in the store.
    """

    snapshot: str
    scenario: str
    scope: str
    commit: str
    created: int
    reason: str | None = None
    name: str = ""

    def to_json(self) -> str:
        """The file's text."""
        document = {
            "schema": ENTRY_SCHEMA,
            "snapshot": self.snapshot,
            "scenario": self.scenario,
            "scope": self.scope,
            "commit": self.commit,
            "created_ns": self.created,
            "reason": self.reason,
        }
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def entry_of(document: dict[str, Any], name: str) -> Entry:
    """An entry read back.

    Raises:
        InputError: it is none.
    """
    texts = {k: document.get(k) for k in ("snapshot", "scenario", "scope", "commit")}
    created, reason = document.get("created_ns"), document.get("reason")
    right = document.get("schema") == ENTRY_SCHEMA and all(isinstance(v, str) for v in texts.values())
    if not right or isinstance(created, bool) or not isinstance(created, int) or not 0 <= created < 1 << 63 or not (reason is None or isinstance(reason, str)):
        raise InputError(f"this is no {ENTRY_SCHEMA} document", name)
    if not _DIGEST.fullmatch(str(texts["snapshot"])):
        raise InputError("its snapshot is no SHA-256", name)
    return Entry(str(texts["snapshot"]), str(texts["scenario"]), str(texts["scope"]), str(texts["commit"]), created, reason, name)


def slug(text: str) -> str:
    """A text as part of a file's name; different texts may share one, the entry holds the whole.

    >>> slug("tp 2/full"), slug("..")
    ('tp-2-full', 'x')
    """
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text)[:60].strip("-") or "x"
