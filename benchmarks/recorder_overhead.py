"""What does a recorder cost a training step: while it waits, and while it records? Ratios within one process.

    python benchmarks/recorder_overhead.py [--hidden 256] [--layers 6] [--steps 60]

Plain, waiting and recording steps are taken in turns of ten, so that the load of the machine falls on all alike; each
ratio is of medians over plain steps of the same run. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import tempfile
import time

import torch
from torch import nn

from tracekit.recorder import Recorder, Window

TURN = 10


class Block(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attention = nn.Linear(hidden, hidden)
        self.mlp = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Model(nn.Module):
    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(hidden) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def turn(step, recorder: Recorder | None) -> list[int]:
    """Times of ten steps in ns, the recorder's own step included."""
    times = []
    for _ in range(TURN):
        start = time.perf_counter_ns()
        step()
        if recorder is not None:
            recorder.step()
        times.append(time.perf_counter_ns() - start)
    return times


def measure(hidden: int, layers: int, steps: int) -> dict[str, float]:
    """Medians of the three kinds of step, and their ratios."""
    model = Model(hidden, layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(4, 64, hidden)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    times: dict[str, list[int]] = {"plain": [], "waiting": [], "recording": []}
    turn(step, None)
    for _ in range(max(steps // TURN, 1)):
        times["plain"] += turn(step, None)
        with tempfile.TemporaryDirectory() as folder, Recorder(folder, model, optimizer, window=Window(wait=10**6)) as recorder:
            times["waiting"] += turn(step, recorder)
        with tempfile.TemporaryDirectory() as folder, Recorder(folder, model, optimizer, window=Window(0, 1, 10**6, 1)) as recorder:
            recorder.step()
            times["recording"] += turn(step, recorder)
    median = {kind: statistics.median(values) for kind, values in times.items()}
    return {
        "plain_step_ns": median["plain"],
        "waiting_over_plain_ratio": median["waiting"] / median["plain"],
        "recording_over_plain_ratio": median["recording"] / median["plain"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("tracekit.recorder").setLevel(logging.ERROR)  # a recorder that only waits says that it recorded nothing
    print(json.dumps(measure(arguments.hidden, arguments.layers, arguments.steps)))


if __name__ == "__main__":
    main()
