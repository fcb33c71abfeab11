"""Under which name is an uploaded file kept? The sender's path is a label; what stands on disk is made of its harmless characters.

Ranks and captures are told by folder and file names (``rank00003/capture000/trace.json.gz``), so the harmless part of a name is kept.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from pathlib import PurePosixPath

from tracekit.errors import InputError

LONGEST_PART = 200
LONGEST_PATH = 1000
DEEPEST = 12
_END = 40
_HARMLESS = re.compile(r"[^A-Za-z0-9._=+,@-]")
_DRIVE = re.compile(r"^[A-Za-z]:")
#: Names that Windows gives to devices; a run folder may be copied there.
_DEVICE = re.compile(r"^(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)


def label_of(path: str) -> PurePosixPath:
    """The relative path that a sender gives a file, as it is shown and stored.

    Args:
        path: a file's name, or its path within the folder that was chosen.

    Raises:
        InputError: it is empty, absolute, climbs, is hidden, holds control or invisible characters, or is too long.

    >>> label_of("run\\\\rank0.json")
    PurePosixPath('run/rank0.json')
    """
    text = unicodedata.normalize("NFC", path).replace("\\", "/")
    shown = "".join(c if c.isprintable() else "�" for c in text[:60])
    if any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for c in text):
        raise InputError("a file name with control or invisible characters is refused; rename the file", shown)
    if text.startswith("/") or _DRIVE.match(text):
        raise InputError("an absolute path is refused; give the path within the folder that is uploaded", shown)
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if not parts or text.endswith("/"):
        raise InputError("a file needs a name", shown)
    if ".." in (part.strip() for part in parts):
        raise InputError("a path that climbs out of its folder (..) is refused", shown)
    if any(part.startswith(".") for part in parts):
        raise InputError("a hidden file is no trace; it was left out", shown)
    if len(parts) > DEEPEST or len(text) > LONGEST_PATH or any(len(part.encode()) > LONGEST_PART for part in parts):
        raise InputError(f"the path is too long: at most {DEEPEST} folders, {LONGEST_PART} bytes a name and {LONGEST_PATH} characters in all", shown)
    return PurePosixPath(*parts)


def places(labels: Iterable[PurePosixPath]) -> list[PurePosixPath]:
    """Where the files of one run stand under its own folder, in the order of their labels; no two at one place, whatever the file system.

    >>> [str(p) for p in places(map(PurePosixPath, ("a b/rank0.json", "a?b/rank0.json", "NUL.json")))]
    ['a_b/rank0.json', 'a_b-2/rank0.json', '_NUL.json']
    """
    folders = {PurePosixPath(): PurePosixPath()}
    taken: set[str] = set()
    numbers: dict[str, int] = {}

    def free(within: PurePosixPath, name: str) -> PurePosixPath:
        harmless = _harmless(name)
        place = within / harmless
        wanted = str(place).lower()
        while str(place).lower() in taken:
            # from where the last of this name stopped: thousands of names may be one when they are harmless
            numbers[wanted] = numbers.get(wanted, 1) + 1
            place = within / _numbered(harmless, numbers[wanted])
        taken.add(str(place).lower())
        return place

    def folder(label: PurePosixPath) -> PurePosixPath:
        if label not in folders:
            folders[label] = free(folder(label.parent), label.name)
        return folders[label]

    return [free(folder(label.parent), label.name) for label in labels]


def _harmless(part: str) -> str:
    name = _HARMLESS.sub("_", unicodedata.normalize("NFKC", part))
    if len(name) > LONGEST_PART:  # one letter may become many; the end says what the file is
        name = name[: LONGEST_PART - _END] + name[-_END:]
    name = name.rstrip(".") or "_"
    return f"_{name}" if _DEVICE.match(name) or name.startswith((".", "-")) else name


def _numbered(name: str, number: int) -> str:
    stem, dot, rest = name.partition(".")
    return f"{stem}-{number}{dot}{rest}"
