"""How large is the model that was trained, how much does it train per step, and how fast are its devices?

Sizes come from ``run.json`` (keys ``model`` and ``training``), and what a user gives stands above it. They end up in ``Job.run``
under the same keys, so that every closed form sees them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from tracekit.errors import UsageError
from tracekit.vocabulary import Axis
from tracekit.wording import clean

#: Most of one size, of the MLP's width over hidden, and of FLOP/s of a device that are believed.
MOST_SIZE = 2**40
MOST_RATIO = 1e6
MOST_FLOPS = 1e24
#: Field -> the part of ``run.json`` that holds it under the same name.
_PARTS = {"global_batch": "training", "microbatch_size": "training", "microbatches": "training"}
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}
_WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
#: Device name -> FLOP/s of dense 16-bit matrix products, as the vendors' data sheets state them; the first that matches counts.
_PEAKS: tuple[tuple[str, float, str], ...] = (
    (r"\bMIG\b", 0.0, ""),  # a slice of a device has a slice of its peak
    (r"\bGB200\b", 2500e12, "NVIDIA GB200 NVL72 data sheet"),
    (r"\bB200\b", 2250e12, "NVIDIA HGX B200 data sheet"),
    (r"\bH(100|200) NVL\b", 835e12, "NVIDIA H100 and H200 NVL data sheets"),
    (r"\bH100 PCIe\b", 756e12, "NVIDIA H100 data sheet, PCIe"),
    (r"\bH200\b", 989e12, "NVIDIA H200 data sheet, SXM"),
    (r"\bH100 .*HBM3\b|\bH100 SXM", 989e12, "NVIDIA H100 data sheet, SXM"),
    (r"\bA100\b", 312e12, "NVIDIA A100 data sheet"),
    (r"\bL40S\b", 362e12, "NVIDIA L40S data sheet"),
    (r"\bA10\b", 125e12, "NVIDIA A10 data sheet"),
    (r"\bMI325X\b", 1307e12, "AMD Instinct MI325X data sheet"),
    (r"\bMI300X\b(?!.*\bVF\b)", 1307e12, "AMD Instinct MI300X data sheet"),
    (r"\bMI210\b", 181e12, "AMD Instinct MI210 data sheet"),
)


@dataclass(frozen=True)
class ModelSizes:
    """Sizes of a decoder and of its step; None is not given.

    Attributes:
        hidden, layers, heads, sequence, vocabulary: h, L, a, s, V.
        kv_heads: key and value heads; as many as ``heads`` where None.
        head_size: size of a head; hidden / heads where None.
        ffn_hidden: width of the MLP; 4 x hidden where neither it nor ``mlp_ratio`` is given.
        mlp_ratio: width of the MLP over hidden.
        gated_mlp: the MLP has a third matrix (SwiGLU, GeGLU).
        experts: experts of a layer; a dense model has none, or one.
        dtype: element type of the matrix products: bfloat16, float16 or float32.
        global_batch: samples of a step over all ranks.
        microbatch_size, microbatches: samples of a microbatch; microbatches per step and data-parallel rank.
        peak_flops: FLOP/s that one device does at best.

    Raises:
        UsageError: a size is no whole number above 0, heads do not divide hidden, or a peak is none.

    >>> ModelSizes(hidden=64, heads=4).peak_flops is None
    True
    """

    hidden: int | None = None
    layers: int | None = None
    heads: int | None = None
    sequence: int | None = None
    vocabulary: int | None = None
    kv_heads: int | None = None
    head_size: int | None = None
    ffn_hidden: int | None = None
    mlp_ratio: float | None = None
    gated_mlp: bool | None = None
    experts: int | None = None
    dtype: str | None = None
    global_batch: int | None = None
    microbatch_size: int | None = None
    microbatches: int | None = None
    peak_flops: float | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and name not in ("gated_mlp", "dtype"):
                _check(name, value)
        if self.gated_mlp is not None and not isinstance(self.gated_mlp, bool):
            raise UsageError(f"model sizes: gated_mlp is {_shown(self.gated_mlp)}; give true or false")
        if self.dtype is not None and not (isinstance(self.dtype, str) and self.dtype in _WIDTHS):
            raise UsageError(f"model sizes: there is no peak of type {_shown(self.dtype)}; give one of {', '.join(_WIDTHS)}")
        if self.hidden and self.heads and self.head_size is None and self.hidden % self.heads:
            raise UsageError(f"model sizes: {self.heads} heads do not divide a hidden size of {self.hidden}; give head_size too")
        if self.heads and self.kv_heads and self.heads % self.kv_heads:
            raise UsageError(f"model sizes: {self.kv_heads} key and value heads do not divide {self.heads} heads")

    def over(self, run: Mapping[str, Any]) -> dict[str, Any]:
        """``run.json`` with what is given here above what it says; ``given`` lists the names of these.

        >>> ModelSizes(layers=4).over({"model": {"layers": 2, "hidden": 8}})
        {'model': {'layers': 4, 'hidden': 8}, 'given': ['layers']}
        """
        known = {name: value for name, value in asdict(self).items() if value is not None}
        if not known:
            return dict(run)
        out: dict[str, Any] = {**run, "given": sorted(known)}
        for name, value in known.items():
            if name == "peak_flops":
                out["peak_flops"] = value
                continue
            part = _PARTS.get(name, "model")
            told = _mapping(out, part)
            # what the parameters are stored in is the run's, whatever its products are computed in
            more = {"dtype_bytes": _WIDTHS[value]} if name == "dtype" and told.get("dtype_bytes") is None else {}
            out[part] = {**told, name: value, **more}
        return out


def given_sizes(given: ModelSizes | Mapping[str, Any] | None) -> ModelSizes:
    """Sizes as a user gives them in Python, checked.

    Raises:
        UsageError: a name is not one of ``ModelSizes``, or a value is none.

    >>> given_sizes({"hidden": 64, "peak_flops": "312T"}).peak_flops
    312000000000000.0
    """
    if isinstance(given, ModelSizes):
        return given
    names = [f.name for f in fields(ModelSizes)]
    values = dict(given or {})
    if unknown := sorted(set(values) - set(names)):
        raise UsageError(f"model sizes: there is no size {unknown[0]!r}; name one of {', '.join(names)}")
    if "peak_flops" in values:
        values["peak_flops"] = parse_flops(values["peak_flops"])
    return ModelSizes(**values)


def sizes_of(run: Mapping[str, Any]) -> ModelSizes:
    """The sizes in ``run.json``, as far as they are there.

    Raises:
        UsageError: a size is none.
    """
    model, training = _mapping(run, "model"), _mapping(run, "training")
    found: dict[str, Any] = {}
    for name in (f.name for f in fields(ModelSizes)):
        value = run.get("peak_flops") if name == "peak_flops" else (training if _PARTS.get(name) else model).get(name)
        found[name] = None if name == "dtype" and not (isinstance(value, str) and value in _WIDTHS) else value
    return ModelSizes(**found)


def parse_flops(given: object) -> float | None:
    """FLOP/s from a number or a text such as ``312T``, ``989e12``, ``1.3 PFLOP/s``; None stays None.

    Raises:
        UsageError: it is no number above 0.

    >>> parse_flops("312T"), parse_flops("989e12")
    (312000000000000.0, 989000000000000.0)
    """
    if given is None:
        return None
    text = given if isinstance(given, str) else _shown(given)
    m = re.fullmatch(r"\s*([0-9.]+(?:e\+?\d+)?)\s*([kmgtp]?)(?:flops?(?:/s)?)?\s*", text, re.IGNORECASE)
    try:
        value = math.nan if m is None or isinstance(given, bool) else float(m[1]) * _PREFIXES[m[2].lower()]
    except ValueError:
        value = math.nan
    if not 0 < value <= MOST_FLOPS:
        raise UsageError(f"peak FLOP/s: {_shown(given)} is no speed; give FLOP/s of one device, as in 312T or 989e12")
    return value


def device_peak(names: tuple[str, ...], dtype: str | None) -> tuple[float | None, str]:
    """FLOP/s of dense 16-bit matrix products of a device by its name, and where that number comes from, or why there is none.

    >>> device_peak(("NVIDIA A100-SXM4-80GB",), "bfloat16")
    (312000000000000.0, 'NVIDIA A100 data sheet, dense bfloat16')
    """
    asked = "give --peak-flops"
    kinds = {next(((peak, source) for pattern, peak, source in _PEAKS if re.search(pattern, name)), (0.0, "")) for name in names}
    if not names:
        return None, f"no file names the device: {asked}"
    if len(kinds) > 1:
        return None, f"the job's devices differ: {asked}"
    peak, source = next(iter(kinds))
    if not peak:
        return None, f"the peak of a device named {names[0]} is not known here: {asked}"
    if dtype not in ("bfloat16", "float16"):
        why = "is not known" if dtype is None else f"is {dtype} at rest, and whether they ran in it, in TF32 or in 16 bits is not known"
        return None, f"the type of the matrix products {why}: give --peak-flops, or --dtype bfloat16"
    return peak, f"{source}, dense {dtype}"


def global_batch(sizes: ModelSizes, mesh: Mapping[str, int], world_size: int | None) -> int | None:
    """Samples of a step over all ranks: as given, else samples of a microbatch x microbatches x data-parallel ranks.

    None where either is unknown, or the mesh does not account for every rank.

    >>> global_batch(ModelSizes(microbatch_size=2, microbatches=4), {"tp": 2, "dp_shard": 3}, 6)
    24
    """
    if sizes.global_batch is not None:
        return sizes.global_batch
    if sizes.microbatch_size is None or sizes.microbatches is None or world_size is None:
        return None
    if math.prod(mesh.values()) != world_size:
        return None
    return sizes.microbatch_size * sizes.microbatches * mesh.get(Axis.DP_REPLICATE, 1) * mesh.get(Axis.DP_SHARD, 1)


def _mapping(run: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = run.get(key)
    return part if isinstance(part, Mapping) else {}


def _check(name: str, value: object) -> None:
    most = {"mlp_ratio": MOST_RATIO, "peak_flops": MOST_FLOPS}.get(name)
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= (most or MOST_SIZE)
    if not number or (most is None and not isinstance(value, int)):
        kind = "whole number" if most is None else "number"
        raise UsageError(f"model sizes: {name} is {_shown(value)}; give a {kind} above 0, at most {most or MOST_SIZE:.3g}")


def _shown(value: object) -> str:
    """A value in a message: short, and no number whose digits are too many to be written."""
    return "a number of very many digits" if isinstance(value, int) and value.bit_length() > 128 else clean(repr(value), 60)
