"""Can two runs be compared at all? What must be the same on both sides, and what of it differs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracekit.compare.document import Document

#: Versions that run.json may state, by how libraries are called.
_VERSIONS = ("torch", "cuda", "nccl", "hip", "rccl", "driver", "gloo")


@dataclass(frozen=True)
class Difference:
    """One thing that is not the same on both sides; None is unknown."""

    name: str
    base: Any
    head: Any

    def text(self) -> str:
        """In words.

        >>> Difference("torch", "2.12", "2.13").text()
        'torch 2.12 → 2.13'
        """
        return f"{self.name} {_word(self.base)} → {_word(self.head)}"


def fingerprint(document: Document) -> dict[str, Any]:
    """What a report says of the machine, the software and the job; None where it says nothing.

    Names: device, device_names, world_size, ranks (those recorded), backend, mesh.*, model.*, training.*, schedule,
    stages, recompute (as declared), emulated_compute_ns and the versions of libraries.
    """
    run = _mapping(document.get("run"))
    config = _mapping(run.get("config"))
    pipeline, versions = _mapping(config.get("pipeline")), _mapping(config.get("versions"))
    found: dict[str, Any] = {
        "device": run.get("device"),
        "device_names": sorted(map(str, names)) or None if isinstance(names := run.get("device_names"), list) else None,
        "world_size": run.get("world_size"),
        "ranks": _ranks(run.get("ranks")),
        "backend": run.get("backend") or config.get("backend"),
        "schedule": pipeline.get("schedule"),
        "stages": pipeline.get("stages"),
        "recompute": config.get("recompute"),
        "emulated": run.get("emulated"),
        "emulated_compute_ns": config.get("emulate_compute_ns"),
        **{name: versions.get(name) for name in _VERSIONS},
    }
    for part in ("mesh", "model", "training"):
        stated = _mapping(run.get("mesh") or config.get("mesh")) if part == "mesh" else _mapping(config.get(part))
        # an axis of one rank is as good as none
        kept = {k: v for k, v in stated.items() if not (part == "mesh" and v == 1) and not isinstance(v, (dict, list))}
        found |= {f"{part}.{k}": v for k, v in kept.items() if (part, k) not in (("training", "steps"), ("model", "parameters"))}
    return found


def differences(base: Mapping[str, Any], head: Mapping[str, Any], ignore: Iterable[str] = ()) -> tuple[list[Difference], list[Difference]]:
    """What differs between two fingerprints, and what only one of them knows.

    Args:
        base: one side.
        head: the other.
        ignore: names left out; ``model`` leaves out all of ``model.*``.

    >>> differences({"torch": "2.12", "nccl": None}, {"torch": "2.13", "nccl": "2.28"})[0]
    [Difference(name='torch', base='2.12', head='2.13')]
    """
    left_out = set(ignore)
    names = [n for n in dict.fromkeys([*base, *head]) if n not in left_out and n.split(".")[0] not in left_out]
    pairs = [Difference(n, base.get(n), head.get(n)) for n in names if base.get(n) != head.get(n)]
    absent = [d for d in pairs if (d.base is None or d.head is None) and not d.name.startswith("mesh.")]
    # an axis that one side does not split over is a difference, not something unknown
    return [d for d in pairs if d not in absent], absent


def common(fingerprints: Sequence[Mapping[str, Any]], ignore: Iterable[str] = ()) -> list[Difference]:
    """What differs among the runs of one side."""
    found: dict[str, Difference] = {}
    for other in fingerprints[1:]:
        for d in differences(fingerprints[0], other, ignore)[0]:
            found.setdefault(d.name, d)
    return list(found.values())


def _ranks(ranks: object) -> str | None:
    if not isinstance(ranks, list) or not all(isinstance(r, int) for r in ranks):
        return None
    whole = sorted(set(ranks))
    return f"{whole[0]}-{whole[-1]}" if whole and whole == list(range(whole[0], whole[-1] + 1)) else ",".join(map(str, whole)) or None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _word(value: Any) -> str:
    if value is None:
        return "unknown"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
