"""What does GitHub Actions show of a comparison? A step summary, five annotations at most, and outputs for later steps."""

from __future__ import annotations

import secrets

from tracekit import wording as fmt
from tracekit.report.markdown import escape
from tracekit.report.regression import markdown
from tracekit.report.regression.words import Document, Judged, is_news, judged, sentence, verdict

#: A step's summary may have 1 MiB in all (docs.github.com, workflow commands, "Step isolation and limits").
SUMMARY_BYTES = (1 << 20) - 1024
#: Below this nothing useful can be said.
LEAST_SUMMARY_BYTES = 15_000
#: GitHub shows ten of a kind per step; people read fewer.
MOST_ANNOTATIONS = 5
_MESSAGE = 500


def summary(document: Document, limit: int = SUMMARY_BYTES) -> str:
    """The step summary, at most ``limit`` bytes, to be appended to the file of GITHUB_STEP_SUMMARY."""
    scenario = f": {escape(fmt.clean(document['scenario']))}" if document["scenario"] else ""
    title = f"### tracekit{scenario}\n\n"
    return title + markdown.render(document, limit=limit - len(title.encode()) - 1, most=1000) + "\n"


def commands(document: Document) -> list[str]:
    """Workflow commands, one a line: the verdict first, then what is behind it; none where nothing changed.

    They go to stdout or stderr: the runner reads commands from both.
    """
    if not is_news(document):
        return []
    level = {"regressed": "error", "inconclusive": "warning", "incomparable": "warning"}.get(document["verdict"] or "", "notice")
    out = [command(level, f"tracekit: {verdict(document)}", sentence(document, _MESSAGE))]
    found = [j for j in judged(document) if j.regressed]
    shown = found if len(found) <= MOST_ANNOTATIONS - 1 else found[: MOST_ANNOTATIONS - 2]
    out += [command("error" if j.severity == "fail" else "warning", f"tracekit: {_title(j)}", j.message) for j in shown]
    if len(found) > len(shown):
        out.append(command("notice", "tracekit: more", f"{len(found) - len(shown):,} more have regressed; the step summary and the JSON document tell which"))
    return out


def _title(found: Judged) -> str:
    return f"limit {found.name}" if found.sort == "limits" else found.name


def command(level: str, title: str, message: str) -> str:
    """One workflow command, escaped by GitHub's rules (actions/toolkit, core/src/command.ts).

    >>> command("error", "a,b: c", "50 %\\nmore")
    '::error title=a%2Cb%3A c::50 %25%0Amore'
    """
    return f"::{level} title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def outputs(document: Document) -> str:
    """Lines for the file of GITHUB_OUTPUT: ``verdict``, ``sentence`` and ``exit_code``.

    ``verdict`` is ``no_baseline`` where there is none. Values stand between delimiters that nobody can guess, so that none ends early.
    """
    values = {"verdict": verdict(document).replace(" ", "_"), "sentence": sentence(document), "exit_code": str(document["exit_code"])}
    out = []
    for name, value in values.items():
        end = f"tracekit_{secrets.token_hex(16)}"
        out.append(f"{name}<<{end}\n{value}\n{end}\n")
    return "".join(out)
