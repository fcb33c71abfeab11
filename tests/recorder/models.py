"""A decoder of two blocks, small enough to be recorded in a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

VOCABULARY = 16


class Attention(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out(torch.softmax(q @ k.transpose(-1, -2), -1) @ v)


class Mlp(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, 2 * hidden)
        self.down = nn.Linear(2 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(hidden)
        self.attention = Attention(hidden)
        self.mlp_norm = nn.LayerNorm(hidden)
        self.mlp = Mlp(hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):
    """``run_block(block, x)`` may wrap the call of a block, as recomputation does."""

    def __init__(self, hidden: int = 8, layers: int = 2, run_block: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, hidden)
        self.layers = nn.ModuleDict({str(i): Block(hidden) for i in range(layers)})
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, VOCABULARY)
        self.run_block = run_block or (lambda block, x: block(x))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.layers.values():
            x = self.run_block(block, x)
        return self.head(self.norm(x))


def tokens(batch: int = 2, sequence: int = 4) -> torch.Tensor:
    return torch.arange(batch * sequence).reshape(batch, sequence) % VOCABULARY


def loss(model: nn.Module) -> torch.Tensor:
    batch = tokens()
    return nn.functional.cross_entropy(model(batch).flatten(0, 1), batch.flatten())


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    loss(model).backward()
    optimizer.step()
