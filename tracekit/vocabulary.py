"""What are things called? Event kinds, phases, directions, mesh axes, and the grammar of span names.

Standard library only: the recorder, the readers and the instrumented runs all import this file and nothing else
of tracekit, so that what is written and what is read can never disagree.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What an event is (column ``kind`` of the events table)."""

    OPERATOR = "operator"  #: a framework operator on a CPU thread (Kineto ``cpu_op``)
    RANGE = "range"  #: a record_function range on a CPU thread, properly nested with operators
    PYTHON = "python"  #: a python_function frame (``nn.Module: …``)
    LAUNCH = "launch"  #: a CUDA/HIP runtime or driver call
    COMPUTE = "compute"  #: device work that is no communication and no copy (on CPU runs: emulated compute)
    COMMUNICATION = "communication"  #: a NCCL/RCCL kernel; on CPU runs a ``gloo:*`` execution
    MEMCPY = "memcpy"
    MEMSET = "memset"
    GRAPH = "graph"  #: device work recorded as one piece (a whole CUDA graph) or without a name: busy, of which no part is known
    ASYNC_RANGE = "async_range"  #: ``nccl:*`` annotations: they overlap their neighbours and never are a parent
    DEVICE_RANGE = "device_range"  #: gpu_user_annotation: a range projected onto a stream
    OTHER = "other"  #: overhead, sync records, anything else


class Phase(StrEnum):
    """Which part of the training step an event belongs to (column ``phase``)."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


class Direction(StrEnum):
    """What a collective is for (column ``direction``)."""

    FORWARD = "forward"
    BACKWARD = "backward"
    RECOMPUTE = "recompute"  #: issued again by activation recomputation
    GRADIENT = "gradient"  #: data-parallel (or replicated-parameter) gradients
    PARAMETER = "parameter"  #: sharded parameters gathered
    OPTIMIZER = "optimizer"  #: inside the optimizer step, such as the gradient norm


class Collective(StrEnum):
    """Kinds of communication (column ``collective`` of events, ``kind`` of calls)."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    BARRIER = "barrier"
    SEND = "send"
    RECV = "recv"
    SEND_RECV = "send_recv"  #: one kernel that does several sends and receives (coalesced)
    PEER_COPY = "peer_copy"  #: a copy to or from another GPU by the copy engine: nobody takes part but the one who copies


P2P = frozenset({Collective.SEND, Collective.RECV, Collective.SEND_RECV})


class Axis(StrEnum):
    """Mesh axes. Embedding and other groups keep their own description."""

    DP_REPLICATE = "dp_replicate"
    DP_SHARD = "dp_shard"
    PP = "pp"
    CP = "cp"
    TP = "tp"
    EP = "ep"


class Severity(StrEnum):
    """How bad a health finding is."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


#: Name of the range around emulated (slept) compute; it counts as compute and every output says ``emulated``.
EMULATED_COMPUTE = "emulated_compute"

STEP = re.compile(r"^ProfilerStep\s*#(?P<step>\d{1,15})$")
#: ``layers.3.attention.forward``: the recorder's range of a module (its qualified name) and direction.
#: The ranges of torch's own wrappers, such as ``DistributedDataParallel.forward``, name no layer.
MODULE_SPAN = re.compile(r"^(?!(?:Distributed|FullySharded)?DataParallel\.)(?P<layer>\w+(?:\.\w+)*)\.(?P<direction>forward|backward|recompute)$")
#: ``layers.3.attention_norm.gradient``: a replicated parameter's gradient is reduced, outside forward and backward.
GRADIENT_SPAN = re.compile(r"^(?P<layer>\w+(?:\.\w+)*)\.gradient$")
#: ``FSDP::all_gather (layers.3)``: ranges that fully_shard writes.
FSDP_SPAN = re.compile(r"^FSDP::(?P<what>\w+)(?: \((?P<layer>[^)]*)\))?$")
#: ``PP:1F0``: an action of torch.distributed.pipelining's runtime schedules; the recorder writes the same.
PIPELINE_ACTION = re.compile(r"^PP:(?P<stage>\d{1,9})(?P<action>[FBIW])(?P<microbatch>\d{1,9})$")
PIPELINE_OVERLAP = re.compile(r"^PP:\((?P<parts>[^)]*)\)OVERLAP_F_B$")
PIPELINE_COMM = re.compile(r"^PP:(?P<stage>\d{1,9})(?P<what>SEND_F|RECV_F|SEND_B|RECV_B)(?P<microbatch>\d{1,9})$")
GPIPE_RANGE = re.compile(r"^(?P<what>Forward|Backward) (?P<microbatch>\d{1,9})$")
#: ``F1``, ``stage_B_c2_1``: device work that names its own action and, where there are several, the (virtual) stage.
ACTION_LABEL = re.compile(r"^(?:stage_)?(?P<action>[FBIW])(?:_c(?P<stage>\d{1,9}))?_?(?P<microbatch>\d{1,9})$")
#: Ranges and Python frames that say forward or backward and no more, by who writes them. A DeepSpeed instruction states a buffer, no microbatch.
_WHOLE_PASS = re.compile(
    r"^(?:"
    r"(?P<megatron>forward|backward)[-_](?:compute|step)"  # Megatron-LM: timers of core/pipeline_parallel/schedules.py and its functions
    r"|(?:\w+\.)?_exec_(?P<deepspeed>forward|backward)_pass"  # DeepSpeed: methods of runtime/pipe/engine.py
    r"|(?P<instruction>Forward|Backward)Pass(?:\(.*\))?"  # DeepSpeed: instructions of runtime/pipe/schedule.py
    r")$"
)
#: Python frames: ``megatron/core/pipeline_parallel/schedules.py(280): forward_step``; nanotron calls its passes ``forward`` and ``backward``.
_PYTHON_FRAME = re.compile(r"^(?P<file>\S+\.py)\(\d+\): (?P<function>\w+)$")
_NANOTRON = re.compile(r"(?:^|/)pipeline_parallel/engine\.py$")
#: ``F0``, ``fwd_mb3``, ``forward microbatch 3``, ``forward_step_3``, ``Forward micro batch id: 3`` (nanotron), ``F3.0.0`` (zero-bubble-pipeline-
#: parallelism: microbatch, chunk, part of the sequence).
_NUMBERED_PASS = re.compile(
    r"^(?:(?P<letter>[FBIW])[ _:-]?"
    r"|(?P<word>fwd|forward|bwd|backward)(?:[ _-](?:step|pass|compute))?[ _:-]*(?:(?:mb|u?batch|micro[ _-]?batch)(?:[ _-]?id)?[ _:#=-]*)?)"
    r"(?P<microbatch>\d{1,9})(?:\.(?P<chunk>\d+)\.\d+)?$",
    re.IGNORECASE,
)
OPTIMIZER_SPAN = re.compile(r"^Optimizer\.step#")
#: The number of a layer inside a module path: ``layers.3.attention`` -> 3.
LAYER_INDEX = re.compile(r"(?:^|\.)(?:layers?|blocks?|h)\.(?P<index>\d{1,9})(?:\.|$)")


#: What people add to a module's name to say when it runs.
_WHEN = re.compile(r"[ ._:/-](?P<when>fwd|forward|bwd|backward|recompute)$")
#: A module path that holds the number of a layer and nothing but names: ``model.layers.3.mlp``.
_PATH = re.compile(r"^\w+(?:\.\w+)*$")
#: A layer by its number alone: ``layer_3``, ``TransformerBlock 3``, ``DecoderLayer_3``.
_NUMBERED = re.compile(r"^(?:[A-Za-z]*_)?(?:[A-Za-z]*(?:Layer|Block)|layer|block)[ _.-]?(?P<index>\d{1,9})$")
_DIRECTIONS = {"fwd": Direction.FORWARD, "bwd": Direction.BACKWARD}


class ModuleSpan(NamedTuple):
    """A module's range: path, and forward, backward or recompute."""

    layer: str
    direction: Direction


class Action(NamedTuple):
    """One pipeline action: F, B (whole backward), I (input gradient) or W (weight gradient)."""

    stage: int
    action: str
    microbatch: int


class NamedAction(NamedTuple):
    """What a range of another framework says: F, B, I or W, and the microbatch where it states it."""

    action: str
    microbatch: int | None


def module_span(layer: str, direction: str) -> str:
    """Name of a module's range.

    >>> module_span("layers.3.attention", "forward")
    'layers.3.attention.forward'
    """
    return f"{layer}.{Direction(direction)}"


def parse_module_span(name: str) -> ModuleSpan | None:
    """Read a module's range back, or None.

    >>> parse_module_span("layers.3.mlp.recompute")
    ModuleSpan(layer='layers.3.mlp', direction=<Direction.RECOMPUTE: 'recompute'>)
    """
    m = MODULE_SPAN.match(name)
    return ModuleSpan(m["layer"], Direction(m["direction"])) if m else None


def parse_layer_span(name: str) -> tuple[str, Direction | None] | None:
    """Layer and direction of a range that somebody named after a layer, or None; the direction is None where the name does not tell.

    >>> parse_layer_span("model.layers.3.mlp"), parse_layer_span("TransformerBlock_3 fwd")
    (('model.layers.3.mlp', None), ('layers.3', <Direction.FORWARD: 'forward'>))
    >>> parse_layer_span("layers.0.weight copy"), parse_layer_span("aten::mm")
    (None, None)
    """
    when = _WHEN.search(name)
    base = name[: when.start()] if when else name
    numbered = _NUMBERED.match(base)
    if numbered is None and not (_PATH.match(base) and LAYER_INDEX.search(base)):
        return None
    direction = _DIRECTIONS.get(when["when"]) or Direction(when["when"]) if when else None
    return (f"layers.{int(numbered['index'])}" if numbered else base), direction


def step_span(step: int) -> str:
    """Name of a training step's range, in torch's own notation.

    >>> step_span(3)
    'ProfilerStep#3'
    """
    return f"ProfilerStep#{step}"


def unfinished_step_span(step: int) -> str:
    """Name of the range of a step that began and did not end: no step's time can be read off it.

    >>> STEP.match(unfinished_step_span(3)) is None
    True
    """
    return f"UnfinishedStep#{step}"


def action_span(stage: int, action: str, microbatch: int) -> str:
    """Name of a pipeline action's range, in torch's own notation.

    >>> action_span(1, "F", 0)
    'PP:1F0'
    """
    return f"PP:{stage}{action}{microbatch}"


def parse_actions(name: str) -> tuple[Action, ...]:
    """Read the actions that a range name holds: one, two for an overlapped pair, none for anything else.

    >>> parse_actions("PP:1F0")
    (Action(stage=1, action='F', microbatch=0),)
    >>> parse_actions("PP:(0F3;7B1)OVERLAP_F_B")
    (Action(stage=0, action='F', microbatch=3), Action(stage=7, action='B', microbatch=1))
    """
    m = PIPELINE_ACTION.match(name)
    if m:
        return (Action(int(m["stage"]), m["action"], int(m["microbatch"])),)
    m = PIPELINE_OVERLAP.match(name)
    if m:
        parts = (PIPELINE_ACTION.match(f"PP:{part.strip()}") for part in m["parts"].split(";"))
        return tuple(Action(int(p["stage"]), p["action"], int(p["microbatch"])) for p in parts if p)
    return ()


def parse_label(text: str) -> tuple[int | None, str, int] | None:
    """Stage (where named), action and microbatch that device work states of itself, or None.

    >>> parse_label("stage_B_c2_1"), parse_label("F1"), parse_label("1F0"), parse_label("gemm")
    ((2, 'B', 1), (None, 'F', 1), (1, 'F', 0), None)
    """
    m = ACTION_LABEL.match(text)
    if m:
        return (None if m["stage"] is None else int(m["stage"])), m["action"], int(m["microbatch"])
    found = parse_actions(text if text.startswith("PP:") else f"PP:{text}")
    return (found[0].stage, found[0].action, found[0].microbatch) if len(found) == 1 else None


def parse_named_action(name: str) -> NamedAction | None:
    """The pass of a pipeline that other frameworks' ranges and frames name, and its microbatch where they state it, or None.

    A chunk other than 0 is not read: which stage it is depends on the placement.

    >>> parse_named_action("forward-compute"), parse_named_action("bwd_mb3")
    (NamedAction(action='F', microbatch=None), NamedAction(action='B', microbatch=3))
    >>> parse_named_action("ForwardPass(buffer_id=1)"), parse_named_action("aten::mm"), parse_named_action("F3.1.0")
    (NamedAction(action='F', microbatch=None), None, None)
    """
    frame = _PYTHON_FRAME.match(name)
    text = frame["function"] if frame else name
    if frame and text in ("forward", "backward"):
        return NamedAction(text[0].upper(), None) if _NANOTRON.search(frame["file"]) else None
    whole = _WHOLE_PASS.match(text)
    if whole:
        word = whole["megatron"] or whole["deepspeed"] or whole["instruction"]
        return NamedAction(word[0].upper(), None)
    numbered = None if frame else _NUMBERED_PASS.match(text)
    if numbered is None or int(numbered["chunk"] or 0):
        return None
    return NamedAction((numbered["letter"] or numbered["word"])[0].upper(), int(numbered["microbatch"]))


def layer_index(layer: str | None) -> int | None:
    """Global layer number inside a module path, or None.

    >>> layer_index("layers.3.attention")
    3
    """
    m = LAYER_INDEX.search(layer) if layer else None
    return int(m["index"]) if m else None


#: Sublayers by a part of a module path, first match wins. Names of the attributes in torchtitan, Megatron-LM (core), Hugging
#: Face transformers (Llama, Mixtral, DeepSeek, GPT-2, NeoX, OPT, T5, BERT) and nanoGPT.
_SUBLAYERS = (
    ("norm", re.compile(r"norm|^ln(?:_?\w{1,3})?$")),
    ("head", re.compile(r"^(?:(?:lm_)?head|output_layer|embed_out|unembed\w*|classifier|to_logits)$")),
    ("embedding", re.compile(r"^(?!rotary)\w*embed|^w[tp]e$")),
    (
        "mlp",
        re.compile(
            r"mlp|feed_?forward|ffn|expert|moe|^ff\d*$|^router$|^gate(?:_up)?(?:_proj)?$|^(?:up|down)_proj$|^c_fc$|^(?:linear_)?fc(?:\d|_in|_out)$"
            r"|^intermediate$|^w[123]$|^dense_(?:h_to_4h|4h_to_h)$|^densereludense$"
        ),
    ),
    (
        "attention",
        re.compile(
            r"attn|attention|^w?(?:q|k|v|o|kv|qkv)(?:_[ab])?(?:_proj|_linear)?(?:_with_mqa)?$|^w?qkv|^query_key_value$|^(?:query|key|value)$|^out_proj$"
            r"|^linear_(?:qkv|proj|q|kv)$"
        ),
    ),
)
#: What these mean depends on where they stand: the head beside the layers, the end of the MLP (BERT) inside one.
_BY_PLACE = {"output": ("head", "mlp"), "shared": ("embedding", None)}


def sublayer(path: str | None) -> str | None:
    """Which part of a model a module path is of: attention, mlp, norm, embedding, head, or None where its names do not tell.

    The outermost name decides: a norm inside attention is part of the attention. A layer as a whole is no sublayer.

    >>> sublayer("layers.3.attention.wo"), sublayer("model.layers.0.post_attention_layernorm"), sublayer("layers.3")
    ('attention', 'norm', None)
    >>> sublayer("transformer.wte"), sublayer("lm_head"), sublayer("model.layers.1.block_sparse_moe.gate")
    ('embedding', 'head', 'mlp')
    """
    if not path:
        return None
    inside = LAYER_INDEX.search(path)
    for name in path[inside.end() if inside else 0 :].lower().split("."):
        if name in _BY_PLACE:
            return _BY_PLACE[name][inside is not None]
        found = next((part for part, names in _SUBLAYERS if names.search(name)), None)
        if found:
            return found
    return None


def group_axis(description: str | None) -> str | None:
    """Mesh axis named by a process group's description, or None.

    torch's DeviceMesh calls its groups ``mesh_<dim name>`` (``mesh_tp``, ``mesh_pp_fwd``).

    >>> group_axis("mesh_tp"), group_axis("default_pg")
    ('tp', None)
    """
    if not description:
        return None
    m = re.match(r"^(?:mesh_)?(dp_replicate|dp_shard|dp_cp|dp|pp|cp|tp|ep|fsdp|ddp)(?:_(?:fwd|bwd))?$", description.lower())
    if not m:
        return None
    return {"fsdp": "dp_shard", "ddp": "dp_replicate"}.get(m[1], m[1])


_WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:_checkpoint_wrapped_module|_orig_mod|_fsdp_wrapped_module|module)(?:\.|$)")


def clean_module_path(path: str) -> str:
    """A module's path without the parts that wrappers (DDP, FSDP, checkpoint, compile) put in.

    >>> clean_module_path("module.layers.3._checkpoint_wrapped_module.attention")
    'layers.3.attention'
    """
    return _WRAPPERS.sub("", path).rstrip(".")


#: Kinds by a part of a name, first match wins; names are compared without case, underscores and hyphens.
_COLLECTIVE_WORDS = (
    ("allreducebarrier", Collective.BARRIER),
    ("reducescatter", Collective.REDUCE_SCATTER),
    ("allreduce", Collective.ALL_REDUCE),
    ("allgather", Collective.ALL_GATHER),
    ("alltoall", Collective.ALL_TO_ALL),
    ("broadcast", Collective.BROADCAST),
    ("crossdevicereduce", Collective.ALL_REDUCE),
    ("barrier", Collective.BARRIER),
    ("sendrecv", Collective.SEND_RECV),
    ("recv", Collective.RECV),
    ("send", Collective.SEND),
    ("scatter", Collective.SCATTER),
    ("gather", Collective.GATHER),
    ("reduce", Collective.REDUCE),
)


def collective_of(name: str) -> Collective | None:
    """Kind of collective that a kernel, operator or metadata name stands for.

    >>> collective_of("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(args)"), collective_of("c10d::_reduce_scatter_base_")
    (<Collective.ALL_REDUCE: 'all_reduce'>, <Collective.REDUCE_SCATTER: 'reduce_scatter'>)
    """
    flat = re.sub(r"[-_\s]", "", name).lower()
    return next((kind for word, kind in _COLLECTIVE_WORDS if word in flat), None)
