"""Do backward ranges nest with autograd's nodes after the export?"""

from __future__ import annotations

import gzip

import pytest

from tracekit.recorder.nesting import compress, nest, nested

NODES = [(0, 10), (12, 18), (20, 30)]


@pytest.mark.parametrize(
    ("before", "nodes", "after"),
    [
        ((2, 22), NODES, (0, 20)),  # both edges inside nodes: from the first node's start to the last one's
        ((2, 31), NODES, (0, 31)),  # closed by the final callback, outside every node
        ((11, 22), NODES, (11, 20)),
        ((13, 17), NODES, (13, 17)),  # inside one node whole
        ((12, 20), NODES, (12, 20)),  # on the edges
        ((2, 8), [(0, 100), (1, 6), (7, 9)], (1, 7)),  # re-entrant backward: the outer node holds the range, the inner ones are cut
        ((2, 22), [], (2, 22)),
    ],
)
def test_edges_move_to_the_nodes_they_cut(before, nodes, after):
    assert nested(*before, nodes) == after


def event(category: str, name: str, ts: str, dur: str, tid: int = 7) -> str:
    return f'{{\n"ph": "X", "cat": "{category}", "name": "{name}", "pid": 1, "tid": {tid},\n"ts": {ts}, "dur": {dur}\n,"args": {{}}\n}}'


NODE = "autograd::engine::evaluate_function: "


def test_only_backward_ranges_change_and_only_by_nodes_of_their_thread():
    head = [
        event("cpu_op", NODE + "AddBackward0", "5122249159215.577", "10.000"),
        event("cpu_op", NODE + "MulBackward0", "5122249159235.577", "10.000"),
        event("cpu_op", NODE + "MulBackward0", "5122249159200.000", "900.000", tid=8),
        event("user_annotation", "layers.3.forward", "5122249159220.000", "20.000"),
    ]
    before = event("user_annotation", "layers.3.mlp.backward", "5122249159216.577", "20.000")
    after = event("user_annotation", "layers.3.mlp.backward", "5122249159215.577", "20.000")
    assert nest(",\n".join([*head, before]).encode()).decode() == ",\n".join([*head, after])


def test_compressed_file_is_whole_and_carries_its_own_name(tmp_path):
    raw = tmp_path / "raw.json"
    raw.write_text('{"traceEvents": [\n' + event("cpu_op", "aten::add", "1.000", "2.000") + '],"traceName": "/somewhere/raw.json" }')
    compress(raw, tmp_path / "trace.json.gz")
    with gzip.open(tmp_path / "trace.json.gz", "rt") as file:
        assert file.read() == raw.read_text().replace("/somewhere/raw.json", "trace.json.gz")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["raw.json", "trace.json.gz"]
