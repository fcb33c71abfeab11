"""What does a merge request in GitLab show of a comparison? Code-quality findings, and the head's numbers as a metrics report."""

from __future__ import annotations

import hashlib
import json
import math
import re
from pathlib import PurePosixPath
from typing import Any

from tracekit import wording as fmt
from tracekit.report.regression.words import Document, Judged, judged, sentence, verdict

#: Findings of one file, and lines of a metrics report.
MOST_FINDINGS, MOST_NUMBERS = 1_000, 1_000
_UNTOLD = ("inconclusive", "incomparable")


def render(document: Document) -> str:
    """Code quality as JSON: what regressed, and what would have to be known but cannot be told; ``[]`` where there is nothing.

    Fields by docs.gitlab.com, "Code Quality report format". A finding's fingerprint holds scenario, kind and name and no
    number, so it is the same one from run to run.
    """
    every = judged(document)
    found = [j for j in every if j.regressed] + [j for j in every if j.verdict in _UNTOLD and j.decisive]
    path = _path(document)
    out = [_finding(document, path, j.sort, j.id, _severity(j), f"{j.name}: {j.verdict}: {j.message}") for j in found[:MOST_FINDINGS]]
    if document["verdict"] not in ("unchanged", "improved") and not found:
        out.append(_finding(document, path, "comparison", "comparison", "info", f"{verdict(document)}: {sentence(document, 500)}"))
    if len(found) > MOST_FINDINGS:
        out.append(_finding(document, path, "comparison", "more", "info", f"{len(found) - MOST_FINDINGS:,} more findings are in the JSON document"))
    return json.dumps(out, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _severity(one: Judged) -> str:
    if one.verdict in _UNTOLD:
        return "info"
    return "critical" if one.sort == "limits" else "major" if one.severity == "fail" else "minor"


def _finding(document: Document, path: str, kind: str, name: str, severity: str, description: str) -> dict[str, Any]:
    key = json.dumps([document["scenario"], kind, name], ensure_ascii=True)
    return {
        "description": description,
        "check_name": f"tracekit.{kind}",
        "fingerprint": hashlib.sha256(key.encode()).hexdigest(),
        "severity": severity,
        "location": {"path": path, "lines": {"begin": 1}},
    }


def _path(document: Document) -> str:
    """Where the first run of the head lies, where that is a path within a project; else a name of ours."""
    source = next((s for h in document["head"] if isinstance(s := h.get("source"), str)), "")
    path = PurePosixPath(fmt.clean(source, 300))
    return str(path) if path.parts and not path.is_absolute() and ".." not in path.parts else "tracekit"


def metrics(document: Document) -> str:
    """The head's numbers as OpenMetrics text, in the unit of their names; GitLab shows how they differ from the target branch.

    Only what every step has one of: facts and times of whole ranks and parts, not of single layers.
    """
    lines: dict[str, list[str]] = {}
    count = 0
    for row in document["metrics"]:
        value = row["head"]
        if row["sort"] not in ("fact", "step", "part") or isinstance(value, (bool, str, list)) or value is None or not math.isfinite(value):
            continue
        if count == MOST_NUMBERS:
            break
        count += 1
        name = "tracekit_" + re.sub(r"\W", "_", row["metric"], flags=re.ASCII)[:100]
        places = ",".join(f'{p}="{v}"' for p, v in {_label(p): _value(v) for p, v in row["where"].items()}.items())
        lines.setdefault(name, []).append(f"{name}{{{places}}} {value!r}" if places else f"{name} {value!r}")
    return "".join(f"# TYPE {name} gauge\n" + "\n".join(of) + "\n" for name, of in lines.items()) + "# EOF\n"


def _label(place: str) -> str:
    return re.sub(r"\W", "_", place, flags=re.ASCII)[:60].lstrip("0123456789_") or "place"


def _value(value: object) -> str:
    return fmt.clean(value, 200).replace("\\", "\\\\").replace('"', '\\"')
