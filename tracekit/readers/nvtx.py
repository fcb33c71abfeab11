"""What do NVTX ranges say? Names without torch's decoration, which are operators, and which overlap their neighbours.

``torch.autograd.profiler.emit_nvtx`` writes an operator as ``aten::mm, seq = 12, op_id = 990346, sizes = [[2, 3]]``; the
number that forward and backward share, and the arguments, are part of the name there.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from tracekit.columns import Mask, Objects, Rows, choose
from tracekit.intervals import parents
from tracekit.numbers import natural, numbers
from tracekit.vocabulary import Kind

#: Event types of Nsight Systems: ranges of a thread's stack, and ranges that are begun and ended anywhere.
PUSH_POP, START_END = (59, 70), (60, 71)
_DECORATED = re.compile(r"^(?P<name>.*?)(?:, seq = (?P<seq>\d{1,18}))?(?:, op_id = \d+)?(?:, sizes = \[.*)?(?:, input_op_ids = \[.*)?$", re.DOTALL)
#: Operators, autograd nodes and the record of a collective; not torch's own ranges that look like it.
_OPERATOR = re.compile(r"^(?!FSDP::)(?:\w+::)+\w|^\w+Backward\d*$|^record_param_comms$")
#: Autograd's own: in backward, whatever number they carry.
_BACKWARD = re.compile(r"^(?:torch::)?autograd::|Backward\d*$")


def named(texts: Objects) -> pd.DataFrame:
    """What the texts of ranges mean.

    Args:
        texts: one text per range, or None.

    Returns:
        name (without torch's decoration), sequence and fwd_thread (as Kineto gives them: 0 of a forward operator, 1 of a
        backward node), operator (whether it is one, rather than a range).

    >>> named(np.array(["aten::mm, seq = 12, op_id = 7", "PP:1F0"], object)).values.tolist()
    [['aten::mm', 12, 0, True], ['PP:1F0', <NA>, <NA>, False]]
    """
    codes, distinct = pd.factorize(pd.Series(texts, dtype=object))
    found = [_DECORATED.match(str(text)) for text in distinct]
    names = [m["name"] if m else str(text) for m, text in zip(found, distinct, strict=True)]
    sequence = [natural(m["seq"]) if m else None for m in found]
    forward = [None if s is None else int(_BACKWARD.search(n) is not None) for s, n in zip(sequence, names, strict=True)]
    table = pd.DataFrame(
        {
            "name": np.array(names, object),
            "sequence": numbers(sequence, "Int64"),
            "fwd_thread": numbers(forward, "Int64"),
            "operator": np.array([_OPERATOR.search(n) is not None for n in names], bool),
        }
    )
    missing = pd.DataFrame({"name": [None], "sequence": pd.array([None], "Int64"), "fwd_thread": pd.array([None], "Int64"), "operator": [False]})
    whole = pd.concat([table, missing.astype(table.dtypes.to_dict())], ignore_index=True)
    return whole.iloc[codes].reset_index(drop=True)


def kinds(operator: Mask, start_end: Mask, thread: Rows, start: Rows, end: Rows) -> Objects:
    """Kind of each range: operator, range, or async range where a start-end range crosses the thread's stack of calls."""
    crossing = np.zeros(len(start), bool)
    crossing[start_end] = crosses(thread[~start_end], start[~start_end], end[~start_end], thread[start_end], start[start_end], end[start_end])
    return choose(crossing, Kind.ASYNC_RANGE, choose(operator, Kind.OPERATOR, Kind.RANGE))


def crosses(thread: Rows, start: Rows, end: Rows, of_thread: Rows, of_start: Rows, of_end: Rows) -> Mask:
    """Which of some intervals cut into the nested intervals of their thread, instead of lying around or within them.

    >>> crosses(*np.array([[0], [10], [20]]), *np.array([[0, 0, 0], [12, 5, 15], [18, 25, 25]])).tolist()
    [False, False, True]
    """
    n = len(of_start)
    if not n:
        return np.zeros(0, bool)
    # the innermost interval around its first edge must outlive it, the one around its last edge must be older
    at = np.concatenate((of_start, of_end))
    where, back = np.unique(np.stack((np.tile(of_thread, 2), at)), axis=1, return_inverse=True)
    t, s, e = (np.concatenate(pair) for pair in ((thread, where[0]), (start, where[1] - 1), (end, where[1] + 1)))
    order = np.lexsort((-e, s, t))
    around = np.full(len(t), -1, np.int64)
    found = parents(t[order], s[order], e[order])
    around[order] = np.where(found >= 0, order[found], -1)
    probe = around[len(thread) :][back.ravel()]
    first, last = probe[:n], probe[n:]
    out: Mask = ((first >= 0) & (e[first] < of_end)) | ((last >= 0) & (s[last] > of_start))
    return out
