"""Where else does a comparison go, beside the terminal? Files for people and CI systems, all from the one document; added to a command by ``renders``."""

from __future__ import annotations

import json as jsonlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tracekit.cli.flags import instead_of
from tracekit.cli.screen import rich_terminal, say, writable, write
from tracekit.errors import UsageError

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Outputs:
    """What is written: a file each, or None; ``gitlab`` by the ending of each name; ``github`` to the files that its runner names."""

    save: Path | None = None
    markdown: Path | None = None
    html: Path | None = None
    junit: Path | None = None
    gitlab: tuple[Path, ...] = ()
    github: bool = False

    @property
    def files(self) -> list[Path]:
        """Every file that is named."""
        return [p for p in (self.save, self.markdown, self.html, self.junit, *self.gitlab) if p is not None]


def asked(
    save: Annotated[Path | None, typer.Option("--save", metavar="FILE.json", help="Write the comparison itself: tracekit render reads it again.")] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="Write a comment for a pull request (under 60 kB).")] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write one self-contained page with the pictures.")] = None,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML: one test case per judged number.")] = None,
    gitlab: Annotated[
        list[Path] | None,
        typer.Option("--gitlab", metavar="FILE", help="Write GitLab code quality (*.json) or a metrics report (*.txt); repeat for both.", show_default="none"),
    ] = None,
    github: Annotated[bool, typer.Option("--github", help="Tell GitHub Actions: step summary, outputs, five annotations at most.")] = False,
) -> Outputs:
    """The Outputs that the flags ask for.

    Raises:
        UsageError: two of them name one file, or one cannot be written.
    """
    made = Outputs(save, markdown, html, junit, tuple(gitlab or ()), github)
    for path in made.files:
        writable(path)
    places = [p.resolve() for p in made.files]
    if twice := next((p for p in places if places.count(p) > 1), None):
        raise UsageError(f"{twice.name!r} is named twice: give each output a file of its own")
    if wrong := next((p for p in made.gitlab if p.suffix not in (".json", ".txt")), None):
        raise UsageError(f"--gitlab {wrong.name!r}: end it with .json (code quality) or .txt (metrics report)")
    return made


#: A command with the flags of ``asked`` in place of its parameter ``outputs``.
renders = instead_of("outputs", asked)


def tell(document: Document, outputs: Outputs, *, as_json: bool) -> int:
    """Write a comparison everywhere it is asked for, and give its exit code. Files come first: who sees the text can open them."""
    from tracekit.report import regression

    deliver(document, outputs)
    if as_json:
        sys.stdout.write(as_text(document))
    elif rich_terminal():
        from rich.console import Console

        Console(highlight=False).print(regression.renderable(document))
    else:
        sys.stdout.write(regression.text(document))
    return int(document["exit_code"])


def deliver(document: Document, outputs: Outputs) -> None:
    """Write every file, each as a whole or not at all, and tell GitHub where it is asked for.

    Raises:
        UsageError: a file cannot be written.
    """
    if outputs.save is not None:
        write(outputs.save, as_text(document))
    if outputs.markdown is not None:
        from tracekit.report.regression import markdown

        write(outputs.markdown, markdown.render(document))
    if outputs.html is not None:
        from tracekit.report.regression.html import render as page

        write(outputs.html, page(document))
    if outputs.junit is not None:
        from tracekit.report.regression import junit

        write(outputs.junit, junit.render(document))
    for path in outputs.gitlab:
        from tracekit.report.regression import gitlab

        write(path, gitlab.metrics(document) if path.suffix == ".txt" else gitlab.render(document))
    if outputs.github:
        _github(document)


def _github(document: Document) -> None:
    """Step summary and outputs go to the files that the runner names; annotations to stderr, which it reads like stdout."""
    from tracekit.report.regression import github

    for line in github.commands(document):
        sys.stderr.write(line.encode("utf-8", "replace").decode() + "\n")
    sys.stderr.flush()
    place = os.environ.get("GITHUB_STEP_SUMMARY")
    if place:
        room = github.SUMMARY_BYTES - _size(place)
        if room >= github.LEAST_SUMMARY_BYTES:
            _append(place, github.summary(document, room))
        else:
            say(f"no step summary: {place} is full")
    if output := os.environ.get("GITHUB_OUTPUT"):
        _append(output, github.outputs(document))
    missing = [name for name, value in (("GITHUB_STEP_SUMMARY", place), ("GITHUB_OUTPUT", output)) if not value]
    if missing:
        say(f"--github: {' and '.join(missing)} not set, so this is no step of GitHub Actions; going on without")


def _size(place: str) -> int:
    try:
        return Path(place).stat().st_size
    except OSError:
        return 0


def _append(place: str, text: str) -> None:
    """Add to a file of the runner's; where it cannot be written, one line says so: the verdict does not depend on it."""
    try:
        with Path(place).open("ab") as file:
            file.write(text.encode("utf-8", "replace"))
    except OSError as e:
        say(f"--github: cannot write {place}: {e.strerror or e}")


def as_text(document: Document) -> str:
    """A document as JSON; what of a command line or file name is no text becomes ``�``."""
    return whole_text(jsonlib.dumps(document, indent=1, allow_nan=False, ensure_ascii=False)) + "\n"


def whole_text(text: str) -> str:
    """Text in which halves of surrogate pairs, which no file can hold, are ``�``."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
