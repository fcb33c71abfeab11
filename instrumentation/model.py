"""What is trained? A GPT-style decoder that knows nothing of parallelism.

Pre-norm blocks of multi-head attention and a GeLU MLP, token and position embeddings, a final norm and an untied head.
The recipes split it from outside, so two things are kept general: attention reads its number of heads off the
projection it is given, and a model may hold only some of the layers (a pipeline stage), under their global numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from instrumentation.config import RunConfig

Built = TypeVar("Built")


class Core(nn.Module):
    """Attention proper: softmax(q kᵀ / √d) v, written out so that its activations are those of the textbooks.

    A module of its own because selective recomputation repeats exactly this (Korthikanti et al. 2022, §5).

    Attributes:
        first_query: position of the first query among the keys; 0 unless the queries are a later part of the sequence.
    """

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.first_query = 0

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Causal attention of q [batch, heads, queries, d] over k, v [batch, heads, keys, d]; the shape of q."""
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        visible = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril(self.first_query)
        probabilities = scores.masked_fill(~visible, float("-inf")).softmax(dim=-1)
        return self.dropout(probabilities) @ v


class Attention(nn.Module):
    """Multi-head causal attention with one fused projection, so that a split model converts its input only once.

    The rows of ``qkv`` are ordered by head, then q, k, v: a contiguous part of them is a set of whole heads.

    Attributes:
        run_core: how the core is run; recomputation puts a checkpoint here.
    """

    def __init__(self, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.head_size = hidden // heads
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.core = Core(dropout)
        self.out = nn.Linear(hidden, hidden)
        self.dropout = nn.Dropout(dropout)
        self.run_core: Callable[..., Tensor] = call

    def forward(self, x: Tensor) -> Tensor:
        """x: [batch, sequence, hidden]."""
        qkv = self.qkv(x).unflatten(-1, (-1, 3, self.head_size))  # [batch, sequence, heads, 3, d]
        q, k, v = qkv.permute(3, 0, 2, 1, 4).unbind(0)  # each [batch, heads, sequence, d]
        y = self.run_core(self.core, q, k, v)
        return self.dropout(self.out(y.transpose(1, 2).flatten(-2)))


class Mlp(nn.Module):
    """hidden -> 4 hidden -> hidden with GeLU between."""

    def __init__(self, hidden: int, ratio: int, dropout: float) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, ratio * hidden)
        self.down = nn.Linear(ratio * hidden, hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x: [batch, sequence, hidden]."""
        return self.dropout(self.down(F.gelu(self.up(x))))


class Layer(nn.Module):
    """One pre-norm block: x + attention(norm(x)), then x + mlp(norm(x)).

    Attributes:
        before: a module that the input passes first; emulated compute is put here.
    """

    def __init__(self, config: RunConfig) -> None:
        super().__init__()
        self.before: nn.Module | None = None
        self.attention_norm = nn.LayerNorm(config.hidden)
        self.attention = Attention(config.hidden, config.heads, config.dropout)
        self.mlp_norm = nn.LayerNorm(config.hidden)
        self.mlp = Mlp(config.hidden, config.mlp_ratio, config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x: [batch, sequence, hidden]."""
        if self.before is not None:
            x = self.before(x)
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Embedding(nn.Module):
    """Token plus learned position embedding.

    Attributes:
        first_position: position of the first token; 0 unless the tokens are a later part of the sequence.
    """

    def __init__(self, config: RunConfig) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocabulary, config.hidden)
        self.position = nn.Embedding(config.sequence, config.hidden)
        self.dropout = nn.Dropout(config.dropout)
        self.first_position = 0

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: [batch, sequence] -> [batch, sequence, hidden]."""
        positions = torch.arange(tokens.shape[1], device=tokens.device) + self.first_position
        return self.dropout(self.token(tokens) + self.position(positions))


class Decoder(nn.Module):
    """The model, or the part of it that one pipeline stage holds.

    Every part is initialised from its own seed, so a stage has the parameters that the whole model has.

    Args:
        config: sizes, dropout and seed.
        layers: global numbers of the layers to hold; all of them by default.
        first: hold the embedding.
        last: hold the final norm and the head.

    Attributes:
        run_layers: how a run of layers is applied; recomputation puts checkpoints here.
    """

    def __init__(self, config: RunConfig, layers: Sequence[int] | None = None, first: bool = True, last: bool = True) -> None:
        super().__init__()
        numbers = range(config.layers) if layers is None else layers
        self.embedding = seeded(config.seed, 0, lambda: Embedding(config)) if first else None
        self.layers = nn.ModuleDict({str(n): seeded(config.seed, 2 + n, lambda: Layer(config)) for n in numbers})
        self.norm = nn.LayerNorm(config.hidden) if last else None
        self.head = seeded(config.seed, 1, lambda: nn.Linear(config.hidden, config.vocabulary, bias=False)) if last else None
        self.run_layers: Callable[[list[nn.Module], Tensor], Tensor] = chain
        self.to(getattr(torch, config.dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [batch, sequence] (hidden states where there is no embedding) -> logits (hidden states where no head)."""
        if self.embedding is not None:
            x = self.embedding(x)
        x = self.run_layers(list(self.layers.values()), x)
        if self.norm is not None and self.head is not None:
            x = self.head(self.norm(x))
        return x


def call(module: nn.Module, *args: Tensor) -> Tensor:
    """Run a module, nothing else."""
    return module(*args)


def chain(layers: Sequence[nn.Module], x: Tensor) -> Tensor:
    """Run layers one after the other."""
    for layer in layers:
        x = layer(x)
    return x


def seeded(seed: int, part: int, build: Callable[[], Built]) -> Built:
    """Build modules from a seed of its own; the caller's random state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed * 10_007 + part)
        return build()


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean over all tokens of the negative log likelihood."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
