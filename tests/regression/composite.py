"""What would GitHub do with a composite action? Its shell steps run here, its files and expressions are the real ones; ``uses`` steps are only noted.

After the documented rules (https://docs.github.com/actions): expressions in ``if``, ``env``, ``with``, ``working-directory`` and
outputs; ``bash --noprofile --norc -eo pipefail``; the files behind GITHUB_OUTPUT, GITHUB_ENV, GITHUB_PATH and GITHUB_STEP_SUMMARY.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_TOKEN = re.compile(r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<name>[A-Za-z_][\w.-]*)|(?P<sign>&&|\|\||==|!=|!|\(|\)|,))")
#: Signs that join values, the loosest first, and what the left one must be to be the answer.
_SIGNS = (("||", True), ("&&", False))


@dataclass
class Ran:
    """What an action did."""

    failed: bool = False
    exit_code: int = 0
    outputs: dict[str, str] = field(default_factory=dict)
    summary: str = ""
    log: str = ""
    logs: dict[str, str] = field(default_factory=dict)
    used: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    @property
    def annotations(self) -> list[str]:
        """Lines that the runner would take as commands."""
        return [line for line in self.log.splitlines() if line.lstrip().startswith("::")]


def run(action: Path, inputs: Mapping[str, str], github: Mapping[str, Any], environment: Mapping[str, str], folder: Path, scratch: Path) -> Ran:
    """Run an action.

    Args:
        action: its ``action.yml``.
        inputs: what the workflow gives.
        github: the context of that name.
        environment: of the job.
        folder: the workspace.
        scratch: for the runner's own files.
    """
    document = yaml.safe_load(action.read_text(encoding="utf-8"))
    assert set(inputs) <= set(document["inputs"]), "an input that the action does not have is only warned about by GitHub"
    context: dict[str, Any] = {"github": github, "steps": {}, "inputs": {}}
    context["inputs"] = {name: inputs.get(name, filled(str(entry.get("default", "")), context, False)) for name, entry in document["inputs"].items()}
    job = {**environment, "GITHUB_ACTION_PATH": str(action.parent)}
    ran = Ran()
    for number, step in enumerate(document["runs"]["steps"]):
        assert "${{" not in step.get("run", ""), f"{step['name']}: an expression in a script is a way in for whoever writes its value"
        condition = str(step.get("if", "success()")).removeprefix("${{").removesuffix("}}").strip()
        if not re.search(r"\b(?:always|cancelled|failure|success)\(", condition):
            condition = f"success() && ({condition})"
        if not truth(value(condition, context, ran.failed)):
            continue
        if "uses" in step:
            ran.used.append((step["uses"], {k: filled(str(v), context, ran.failed) for k, v in step["with"].items()}))
            continue
        assert step["shell"] == "bash"
        files = {name: scratch / f"{number}-{name}" for name in ("OUTPUT", "ENV", "PATH", "STEP_SUMMARY")}
        script = scratch / f"{number}.sh"
        script.write_text(step["run"])
        for path in files.values():
            path.touch()
        own = {k: filled(str(v), context, ran.failed) for k, v in step.get("env", {}).items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=folder / filled(step.get("working-directory", "."), context, ran.failed),
            env={**job, **{f"GITHUB_{name}": str(path) for name, path in files.items()}, **own},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        outputs = assigned(files["OUTPUT"].read_text())
        if "id" in step:
            context["steps"][step["id"]] = {"outputs": outputs}
        job |= assigned(files["ENV"].read_text())
        for line in files["PATH"].read_text().splitlines():
            job["PATH"] = line + os.pathsep + job["PATH"]
        ran.summary += files["STEP_SUMMARY"].read_text()
        ran.logs[step["name"]] = done.stdout
        ran.log += done.stdout
        if done.returncode and not step.get("continue-on-error"):
            ran.failed, ran.exit_code = True, ran.exit_code or done.returncode
    ran.outputs = {name: filled(entry["value"], context, ran.failed) for name, entry in document["outputs"].items()}
    return ran


def assigned(text: str) -> dict[str, str]:
    """What an environment file says: ``name=value``, or ``name<<END`` and lines up to END."""
    found: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        name, sign, rest = line.partition("=") if "<<" not in line.split("=", 1)[0] else line.partition("<<")
        assert sign, f"GitHub refuses this line: {line!r}"
        if sign == "<<":
            body = []
            for inner in lines:
                if inner == rest:
                    break
                body.append(inner)
            else:
                raise AssertionError(f"{name} never ends")
            rest = "\n".join(body)
        found[name] = rest
    return found


def filled(text: str, context: Mapping[str, Any], failed: bool) -> str:
    """A text with its expressions evaluated."""
    return re.sub(r"\$\{\{(.*?)\}\}", lambda m: written(value(m[1], context, failed)), text, flags=re.DOTALL)


def written(found: Any) -> str:
    """A value as text."""
    return {None: "", True: "true", False: "false"}.get(found, str(found)) if not isinstance(found, Mapping) else "Object"


def truth(found: Any) -> bool:
    """Whether a value counts as true."""
    return found not in (None, False, "", 0)


def value(expression: str, context: Mapping[str, Any], failed: bool) -> Any:
    """The value of an expression: names, texts, comparisons, ``!``, ``&&``, ``||``, parentheses and status functions."""
    tokens: list[str] = []
    at, text = 0, expression.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match, f"no expression: {text[at:]!r}"
        tokens.append(match[0].strip())
        at = match.end()
    rest = _joined(tokens, context, failed)
    assert not tokens, f"left over: {tokens}"
    return rest


def _joined(tokens: list[str], context: Mapping[str, Any], failed: bool, level: int = 0) -> Any:
    if level == len(_SIGNS):
        return _equal(tokens, context, failed)
    sign, decided = _SIGNS[level]
    left = _joined(tokens, context, failed, level + 1)
    while tokens[:1] == [sign]:
        tokens.pop(0)
        right = _joined(tokens, context, failed, level + 1)
        left = left if truth(left) is decided else right
    return left


def _equal(tokens: list[str], context: Mapping[str, Any], failed: bool) -> Any:
    left = _one(tokens, context, failed)
    if tokens[:1] in (["=="], ["!="]):
        sign = tokens.pop(0)
        right = _one(tokens, context, failed)
        texts = [written(v).casefold() for v in (left, right)]
        left = (texts[0] == texts[1]) == (sign == "==")
    return left


def _one(tokens: list[str], context: Mapping[str, Any], failed: bool) -> Any:
    token = tokens.pop(0)
    if token == "!":
        return not truth(_one(tokens, context, failed))
    if token == "(":
        inner = _joined(tokens, context, failed)
        assert tokens.pop(0) == ")"
        return inner
    if token.startswith("'"):
        return token[1:-1].replace("''", "'")
    if tokens[:2] == ["(", ")"]:
        del tokens[:2]
        return {"always": True, "cancelled": False, "failure": failed, "success": not failed}[token]
    found: Any = context
    for part in token.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
