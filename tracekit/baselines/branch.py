"""Baselines on a git branch: one commit per change, no work tree touched, concurrent jobs taken in turn by compare-and-swap."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from tracekit.baselines.files import MAX_BYTES, checked
from tracekit.errors import InputError, UsageError
from tracekit.wording import clean

#: Times that a change is tried again on top of somebody else's.
TRIES = 40
_NOBODY = "0" * 40


class Branch:
    """Files in the tree of a local branch.

    Args:
        name: the branch, such as ``tracekit-baselines``.
        repository: any folder of the repository.

    Nothing is fetched or pushed: ``git fetch origin NAME:NAME`` before and ``git push origin NAME`` after do.
    """

    def __init__(self, name: str, repository: Path) -> None:
        self._repository = repository
        self._ref = f"refs/heads/{name}"
        if subprocess.run(["git", "check-ref-format", self._ref], capture_output=True, check=False).returncode or name.startswith("-"):
            raise UsageError(f"{name[:80]!r} is no name of a git branch")
        self._git("rev-parse", "--git-dir")

    def __str__(self) -> str:
        return f"git:{self._ref.removeprefix('refs/heads/')}"

    def names(self, under: str) -> list[str]:
        """Names of the files under a folder, sorted."""
        head = self._head()
        listed = self._git("ls-tree", "-r", "-z", "--full-tree", "--name-only", head, "--", checked(under)) if head else b""
        return sorted(n for n in listed.decode("utf-8", "replace").split("\0") if n)

    def read(self, name: str) -> bytes:
        """A file's bytes."""
        head = self._head()
        blob = f"{head}:{checked(name)}"
        size = self._run(["cat-file", "-s", blob]) if head else None
        if size is None or size.returncode:
            raise InputError("there is no such file on the branch", f"{self}/{name}")
        if int(size.stdout) > MAX_BYTES:
            raise InputError(f"larger than {MAX_BYTES:,} bytes, which no snapshot is", f"{self}/{name}")
        done = self._run(["cat-file", "blob", blob])
        if done.returncode:
            raise InputError("this is no file of the branch", f"{self}/{name}")
        return done.stdout

    def write(self, files: Iterable[tuple[str, bytes]], message: str) -> None:
        """Write files, as one commit."""
        blobs = [(checked(name), self._git("hash-object", "-w", "--stdin", data=data).decode().strip()) for name, data in files]
        lines = "".join(f"100644 {blob}\t{name}\n" for name, blob in blobs)
        self._commit(lines, message)

    def delete(self, names: Iterable[str], message: str) -> None:
        """Delete files, as one commit."""
        lines = "".join(f"0 {_NOBODY}\t{checked(name)}\n" for name in names)
        if lines and self._head():
            self._commit(lines, message)

    def modified(self, name: str) -> int | None:
        """A branch does not say when a file was written; nothing is left there without its entry, for both come in one commit."""
        return None

    def _commit(self, lines: str, message: str) -> None:
        """Change the branch's tree; again from its new head where somebody else was faster."""
        said = clean(" ".join(message.split()), 500)
        for attempt in range(TRIES):
            head = self._head()
            with tempfile.TemporaryDirectory() as folder:
                index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
                self._git("read-tree", head or "--empty", more=index)
                self._git("update-index", "--add", "--index-info", data=lines.encode(), more=index)
                tree = self._git("write-tree", more=index).decode().strip()
            if head and tree == self._git("rev-parse", f"{head}^{{tree}}").decode().strip():
                return
            identity = {
                f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "tracekit"), ("EMAIL", "tracekit@localhost"))
            }
            parents = ["-p", head] if head else []
            known = {k: v for k, v in os.environ.items() if k in identity}
            commit = self._git("commit-tree", tree, *parents, "-m", said, more={**identity, **known}).decode().strip()
            if not self._run(["update-ref", self._ref, commit, head or _NOBODY]).returncode:
                return
            time.sleep(min(0.01 * 2**attempt, 0.5))
        raise UsageError(f"{self}: other jobs changed the branch {TRIES} times in a row; try again")

    def _head(self) -> str | None:
        done = self._run(["rev-parse", "--verify", "--quiet", f"{self._ref}^{{commit}}"])
        return done.stdout.decode().strip() or None

    def _git(self, *arguments: str, data: bytes | None = None, more: dict[str, str] | None = None) -> bytes:
        done = self._run(list(arguments), data, more)
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise UsageError(f"{self}: git {arguments[0]}: {said[-1][:200] if said else 'failed'}")
        return done.stdout

    def _run(self, arguments: list[str], data: bytes | None = None, more: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(["git", *arguments], cwd=self._repository, input=data, capture_output=True, env={**os.environ, **(more or {})}, check=False)
        except OSError as e:
            raise UsageError(f"git cannot be started: {e.strerror or e}; baselines on a branch need it") from e
