"""What do all sections share? Title, definition, notes, and the words on how the numbers came about."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tracekit import wording as fmt
from tracekit.report.parts import Grid, Section
from tracekit.report.rows import metric


def emulated(document: Mapping[str, Any]) -> bool:
    """Whether any compute of the run was slept instead of computed."""
    return bool((document.get("run") or {}).get("emulated"))


def told_by_layer(document: Mapping[str, Any], obtained: str) -> tuple[str, tuple[str, ...]]:
    """How numbers by layer were obtained, and the tags for that: where no trace names its layers, which layer it was is inferred."""
    findings = (document.get("health") or {}).get("findings") or ()
    if any(f.get("code") == "layers_inferred" for f in findings):
        return f"{obtained}; which layer it was is inferred from repetition", ("measured", "inferred")
    return obtained, ("measured",)


def section(
    document: Mapping[str, Any],
    name: str,
    obtained: str,
    tags: tuple[str, ...],
    facts: tuple[tuple[str, str], ...] = (),
    grids: tuple[Grid, ...] = (),
) -> Section:
    """A section of a metric, its definition and notes taken from the document."""
    found = metric(document, name)
    full = str(found.get("definition") or "")
    return Section(
        name=name,
        title=fmt.clean(found.get("title") or fmt.label(name).capitalize()),
        question=fmt.clean(found.get("question") or "", 300),
        definition=first_sentence(full),
        full_definition=full,
        tags=(*tags, "emulated") if emulated(document) else tags,
        obtained=sentence(obtained),
        facts=facts,
        grids=tuple(g for g in grids if g.rows),
        notes=tuple(fmt.clean(n, 400) for n in found.get("notes") or ()),
    )


def sentence(text: str) -> str:
    """The text with a capital at its start; names of files and functions stay as they are written.

    >>> sentence("no steps"), sentence("run.json names none")
    ('No steps', 'run.json names none')
    """
    first = text.split(" ", 1)[0].rstrip(".,:;")
    return text if any(c in first for c in "._(") else text[:1].upper() + text[1:]


def first_sentence(text: str) -> str:
    """The first sentence, on one line.

    >>> first_sentence("Busy is the\\n union of work. Source: nobody.")
    'Busy is the union of work.'
    """
    line = " ".join(text.split())
    m = re.match(r".+?(?<!e\.g)(?<!i\.e)\.(?= |$)", line)
    return fmt.clean(m[0] if m else line, 400)
