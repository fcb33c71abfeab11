"""What does the model read? Sentences of a small generated language, one character per token.

A batch is a pure function of the seed, the step and the sample's number, so every recipe sees the same data however
many ranks it is spread over, and nothing has to be downloaded.
"""

from __future__ import annotations

import random
from functools import cache

import torch
from torch import Tensor

from instrumentation.config import RunConfig

_SUBJECTS = ("the baker", "a sailor", "the old clock", "my neighbour", "a grey cat", "the river", "every child", "the postman")
_VERBS = ("watches", "follows", "remembers", "paints", "carries", "forgets", "repairs", "counts")
_OBJECTS = ("the boats", "a letter", "the stars", "two apples", "the garden", "a lantern", "the bridge", "seven stones")
_PLACES = ("at dawn", "in the rain", "by the harbour", "after supper", "without a word", "on the hill", "near the mill", "every spring")
_SENTENCES = 2_000


@cache
def text() -> str:
    """About 90,000 characters of sentences; the same on every machine."""
    pick = random.Random("tracekit").choice
    return " ".join(f"{pick(_SUBJECTS)} {pick(_VERBS)} {pick(_OBJECTS)} {pick(_PLACES)}." for _ in range(_SENTENCES))


@cache
def alphabet() -> tuple[str, ...]:
    """The characters of the text; a character's place is its token."""
    return tuple(sorted(set(text())))


@cache
def tokens() -> Tensor:
    """The text as token numbers, shape [characters]."""
    number = {character: i for i, character in enumerate(alphabet())}
    return torch.tensor([number[character] for character in text()])


def microbatch(config: RunConfig, step: int, index: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets (the next characters), each [microbatch_size, sequence].

    Args:
        config: seed and sizes.
        step: training step, from 0.
        index: number of the microbatch within the step over all data-parallel ranks:
            ``data_rank * microbatches + microbatch``.
    """
    rows = []
    for sample in range(index * config.microbatch_size, (index + 1) * config.microbatch_size):
        start = random.Random(f"{config.seed}/{step}/{sample}").randrange(len(tokens()) - config.sequence)
        rows.append(tokens()[start : start + config.sequence + 1])
    batch = torch.stack(rows)
    return batch[:, :-1].contiguous(), batch[:, 1:].contiguous()


def step_batch(config: RunConfig, step: int, data_rank: int) -> list[tuple[Tensor, Tensor]]:
    """The microbatches that one data-parallel rank works on in a step."""
    return [microbatch(config, step, data_rank * config.microbatches + m) for m in range(config.microbatches)]
