"""Are the files beside a trace checked once, so that nothing after them meets a wrong type?"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tracekit import beside
from tracekit.errors import InputError

BLOCK = {"addr": 1, "bytes": 2, "category": "parameter", "layer": None, "device_type": 0, "device": None}


def written(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "beside.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_what_is_right_comes_back_whole(tmp_path: Path) -> None:
    run = {"mesh": {"tp": 2}, "model": {"hidden": 8, "mlp_ratio": 4}, "training": {"microbatches": 1, "mine": [1]}, "pipeline": None, "mine": {"x": 1}}
    assert beside.run_json(written(tmp_path, run)) == run
    assert [b["when"] for b in beside.memory(written(tmp_path, {"blocks": [BLOCK], "seen": [{**BLOCK, "time_ns": 5}]}))] == ["blocks", "seen"]


@pytest.mark.parametrize(
    ("read", "content", "says"),
    [
        (beside.run_json, [1], "object"),
        (beside.run_json, "{", "not valid JSON"),
        (beside.run_json, "[" * 10**5, "not valid JSON"),
        (beside.run_json, {"mesh": [2]}, r"\$\.mesh"),
        (beside.run_json, {"mesh": {"tp": "two"}}, r"\$\.mesh"),
        (beside.run_json, {"mesh": {"tp": 0}}, ">= 1"),
        (beside.run_json, {"world_size": 10**12}, "world_size"),
        (beside.run_json, {"model": 5}, r"\$\.model"),
        (beside.run_json, {"model": {"mlp_ratio": "x"}}, "mlp_ratio"),
        (beside.run_json, {"model": {"mlp_ratio": 1e307}}, "mlp_ratio"),
        (beside.run_json, '{"model": {"mlp_ratio": NaN}}', "mlp_ratio"),
        (beside.run_json, {"model": {"dtype": ["float32"]}}, "dtype"),
        (beside.run_json, {"model": {"hidden": 2**41}}, "hidden"),
        (beside.run_json, {"training": {"sequence_parallel": "yes"}}, "sequence_parallel"),
        (beside.run_json, {"peak_flops": 10**400}, "peak_flops"),
        (beside.run_json, '{"peak_flops": 1e999}', "peak_flops"),
        (beside.run_json, {"given": 5}, "given"),
        (beside.run_json, {"pipeline": {"virtual": "two"}}, "virtual"),
        (beside.memory, {"blocks": None}, r"\$\.blocks"),
        (beside.memory, {"blocks": [{"bytes": 1}]}, "addr"),
        (beside.memory, {"later": [{**BLOCK, "bytes": 2**70}]}, "bytes"),
        (beside.memory, {"seen": [{**BLOCK, "time_ns": "x"}]}, "time_ns"),
    ],
)
def test_what_is_wrong_is_refused_in_one_line_with_file_and_place(tmp_path: Path, read: Callable[[Path], Any], content: object, says: str) -> None:
    with pytest.raises(InputError, match=says) as refusal:
        read(written(tmp_path, content))
    assert "beside.json" in str(refusal.value) and "\n" not in str(refusal.value)
