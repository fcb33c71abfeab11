"""What does memory.json say stood before the recording?"""

from __future__ import annotations

import json
from collections import defaultdict

import torch
from torch import nn

from tests.recorder.models import Decoder, loss, train_step
from tracekit.recorder import Recorder
from tracekit.recorder.memory import blocks


def totals(rows: list[dict]) -> dict[str, int]:
    sums: dict[str, int] = defaultdict(int)
    for row in rows:
        sums[row["category"]] += row["bytes"]
    return dict(sums)


def test_blocks_of_a_small_module():
    module = nn.ModuleDict({"layers": nn.ModuleDict({"3": nn.Linear(4, 2)})})
    weight, bias = module["layers"]["3"].weight, module["layers"]["3"].bias
    weight.grad = torch.ones(2, 4)
    assert blocks([module], []) == [
        {"addr": weight.data_ptr(), "bytes": 32, "category": "parameter", "layer": "layers.3", "device_type": 0, "device": None},
        {"addr": bias.data_ptr(), "bytes": 8, "category": "parameter", "layer": "layers.3", "device_type": 0, "device": None},
        {"addr": weight.grad.data_ptr(), "bytes": 32, "category": "gradient", "layer": "layers.3", "device_type": 0, "device": None},
    ]


def test_tied_weights_count_once_and_views_by_their_storage():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
            flat = torch.zeros(100)
            self.a.weight.data, self.b.weight.data = flat[:16].view(4, 4), flat[16:32].view(4, 4)

    assert [b["bytes"] for b in blocks([Tied()], [])] == [400]


def test_adam_holds_two_moments_and_a_counter_per_parameter():
    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters())
    parameter_bytes = sum(p.numel() * 4 for p in model.parameters())
    counters = len(list(model.parameters())) * 4
    train_step(model, optimizer)
    assert totals(blocks([model], [optimizer])) == {
        "parameter": parameter_bytes,
        "gradient": parameter_bytes,
        "optimizer_state": 2 * parameter_bytes + counters,
    }


def test_gradients_that_live_within_a_step_only_are_seen(tmp_path):
    model = Decoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Recorder(tmp_path, model=model, optimizer=optimizer, window=(0, 1, 2, 1)) as recorder:
        for _ in range(3):
            loss(model).backward()
            optimizer.step()
            optimizer.zero_grad()
            recorder.step()
    written = json.loads((tmp_path / "rank00000/capture000/memory.json").read_text())
    parameter_bytes = sum(p.numel() * 4 for p in model.parameters())
    assert written["schema"] == "tracekit.memory/1"
    assert totals(written["blocks"]) == totals(written["later"]) == {"parameter": parameter_bytes}
    times = sorted({b["time_ns"] for b in written["seen"]})
    assert len(times) == 2
    assert all(totals([b for b in written["seen"] if b["time_ns"] == t]) == {"gradient": parameter_bytes} for t in times)
    assert {b["layer"] for b in written["seen"]} == {None, "layers.0", "layers.1"}
