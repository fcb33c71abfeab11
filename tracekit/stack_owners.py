"""What was each block of a memory snapshot for, told by the stacks that made and freed it, and which rule decided it?

A snapshot knows no thread, layer or step; what it knows is the order of its records and, of each, the part of training in which its stack
stands (``stated.StackPlace``). A rule decides only where both ends, or what came in between, leave one answer; a block that fits
none is ``unknown``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.columns import Mask, Objects, Rows, integers
from tracekit.owners import CATEGORY, NO_RULE, STACK_PREFIX
from tracekit.stated import StackPlace
from tracekit.vocabulary import Direction

_UNTOLD, _PLAIN, _FORWARD, _AGAIN, _BACKWARD, _OPTIMIZER, _ZERO, _COMMUNICATION, _GATHER, _MODULE = range(10)
_CODES = {
    StackPlace.FORWARD: _FORWARD,
    StackPlace.RECOMPUTE: _AGAIN,
    StackPlace.BACKWARD: _BACKWARD,
    StackPlace.OPTIMIZER: _OPTIMIZER,
    StackPlace.ZERO_GRAD: _ZERO,
    StackPlace.COMMUNICATION: _COMMUNICATION,
    StackPlace.GATHER: _GATHER,
    StackPlace.MODULE_STATE: _MODULE,
}
_DIRECTIONS = {_FORWARD: Direction.FORWARD, _AGAIN: Direction.RECOMPUTE, _BACKWARD: Direction.BACKWARD, _OPTIMIZER: Direction.OPTIMIZER}
#: Places of the loop's own thread after a backward: where one of them is met, the backward is over.
_AFTER_BACKWARD = (_PLAIN, _FORWARD, _OPTIMIZER, _ZERO)
_AFTER_OPTIMIZER = (_PLAIN, _FORWARD, _AGAIN, _BACKWARD, _ZERO)


@dataclass(frozen=True)
class Places:
    """Where in training the records of one device's snapshot stand.

    Attributes:
        code: place of each record, one of this file's codes.
        to_device: whether each is a ``Tensor.to`` of the loop itself.
        stack: number of each record's stack, -1 where it has none.
        maker: what made the block, in one line, or None.
    """

    code: Rows
    to_device: Mask
    stack: Rows
    maker: Objects

    def phase(self) -> Objects:
        """forward, backward or optimizer of each record, a repeated forward being part of its backward, or None."""
        out: Objects = np.where(self.code == _AGAIN, Direction.BACKWARD.value, self.direction())
        return out

    def direction(self) -> Objects:
        """forward, recompute, backward or optimizer of each record, or None."""
        words = np.full(_MODULE + 1, None, object)
        words[list(_DIRECTIONS)] = [d.value for d in _DIRECTIONS.values()]
        out: Objects = words[self.code]
        return out


def places(samples: pd.DataFrame, stacks: pd.DataFrame) -> Places:
    """The place of each record of one device (rows of ``schema.SAMPLES``, in order), by the table ``memory_stacks``."""
    known = stacks.drop_duplicates("stack").reset_index(drop=True)
    stack, numbers = integers(samples["stack"]), pd.Index(known["stack"])
    row = np.where(stack >= 0, numbers.get_indexer(stack), -1)
    codes = [_AGAIN if again else _PLAIN if pd.isna(p) else _CODES[StackPlace(p)] for p, again in zip(known["place"], known["repeated"], strict=True)]
    code = np.array([*codes, _UNTOLD], np.int64)[row]
    moved = np.append(known["to_device"].to_numpy(bool), False)[row]
    maker = np.array([*known["maker"].tolist(), None], object)[row]
    return Places(_filled(code, stack, integers(samples["nbytes"])), moved, stack, maker)


def _filled(code: Rows, stack: Rows, nbytes: Rows) -> Rows:
    """Places of records without a stack, where those around them leave one answer.

    With Python's frames alone autograd's own thread has none: what follows a record of a backward is that backward's, until a record has
    a stack again. Where frees are noted without stacks, one between two records of the same part is of it.
    """
    bare = (stack < 0) & (nbytes != 0)
    if not bare.any() or (stack < 0).all():
        return code
    at = np.where(stack >= 0, np.arange(len(code)), -1)
    before = np.maximum.accumulate(at)
    after = np.minimum.accumulate(np.where(stack >= 0, at, len(code))[::-1])[::-1]
    outer = np.append(np.where(code == _AGAIN, _BACKWARD, code), _UNTOLD)
    left, right = outer[before], outer[after]
    if ((nbytes < 0) & (stack >= 0)).any():
        sure = bare & (left == _BACKWARD)
    else:
        sure = bare & (nbytes < 0) & (left == right) & np.isin(left, [_FORWARD, _BACKWARD, _OPTIMIZER])
    return np.where(sure, left, code)


def owners(at: Places, made: Rows, freed: Rows, nbytes: Rows, ended: Rows) -> tuple[Objects, Objects]:
    """Category and rule of the blocks that the records made.

    Args:
        at: the places of the records.
        made: the record that made each block.
        freed: the record that ended it; their number where none did.
        nbytes: bytes of each block.
        ended: records after which an optimizer step is known to be over (by its range), sorted.

    Returns:
        A word of ``owners.CATEGORIES`` and a code of ``owners.RULES`` per block.
    """
    n, code = len(at.code), np.append(at.code, _UNTOLD)
    here, there, never = code[made], code[freed], freed == n
    forward, backward = _next(at.code, (_FORWARD,), made), _next(at.code, (_BACKWARD,), made)
    optimizer, over = _next(at.code, (_OPTIMIZER,), made), _next(at.code, _AFTER_BACKWARD, made)
    stepped = np.minimum(_next(at.code, _AFTER_OPTIMIZER, made), np.append(ended, n)[np.searchsorted(ended, made, "left")])
    kept = np.where(never, stepped <= n - 1, stepped < freed)
    unlike = _next_other(code[:-1], made)
    trained = bool((at.code == _OPTIMIZER).any())
    lasts = (here == _BACKWARD) & (over < freed)
    repeated = here == _AGAIN
    decided: dict[str, Mask] = {
        "gathered": here == _GATHER,
        "communication": here == _COMMUNICATION,
        "module_state": (here == _MODULE) & (unlike < freed) & (made < _first(at.code, (_BACKWARD,))),
        "input": at.to_device[made] & (forward < np.minimum(freed, n)) & (forward < backward) & (forward < optimizer) & ~never,
        "forward_to_backward": np.isin(here, [_PLAIN, _FORWARD]) & (there == _BACKWARD),
        "repeated_only": repeated & (there == _AGAIN),
        "repeated_to_backward": repeated & (there == _BACKWARD),
        "zeroed": (there == _ZERO) & (here != _OPTIMIZER),
        "backward_to_optimizer": (here == _BACKWARD) & (optimizer < freed),
        "backward_kept": lasts & (optimizer == n) & (never | (not trained)),
        "backward_only": (here == _BACKWARD) & ~never & (freed <= np.minimum(over, optimizer)),
        "optimizer_kept": (here == _OPTIMIZER) & kept,
        "optimizer_only": (here == _OPTIMIZER) & ~never & ~kept,
        "forward_only": (here == _FORWARD) & ~never & ((there == _FORWARD) | (freed <= backward)),
    }
    rule = np.select(list(decided.values()), [STACK_PREFIX + r for r in decided], NO_RULE).astype(object)
    rule = _by_site(rule, at.stack[made], nbytes, never & (rule == NO_RULE) & _still(here, backward, over, stepped, n))
    rule[(rule == NO_RULE) & (here == _FORWARD) & never & (backward == n)] = STACK_PREFIX + "forward_standing"
    return np.array([CATEGORY[r] for r in rule], object), rule


def _still(here: Rows, backward: Rows, over: Rows, stepped: Rows, n: int) -> Mask:
    """Whether the part of training that each block was made in may still need it when the records end."""
    waits = np.isin(here, [_PLAIN, _FORWARD]) & (backward == n)
    out: Mask = waits | (np.isin(here, [_BACKWARD, _AGAIN]) & (over == n)) | ((here == _OPTIMIZER) & (stepped == n))
    return out


def _by_site(rule: Objects, stack: Rows, nbytes: Rows, open_: Mask) -> Objects:
    """Blocks that stand at the end go with those of the same stack and size, where all of these had one category."""
    if not open_.any():
        return rule
    frame = pd.DataFrame({"stack": stack, "nbytes": nbytes, "category": [CATEGORY[r] for r in rule], "told": ~open_ & (stack >= 0)})
    told = frame[frame["told"]].groupby(["stack", "nbytes"])["category"].agg(["first", "nunique"]).reset_index()
    told = told[told["nunique"].eq(1) & told["first"].isin(list(_SITES))]
    found = frame[["stack", "nbytes"]].merge(told, on=["stack", "nbytes"], how="left")["first"].to_numpy(object)
    out = rule.copy()
    for category, code in _SITES.items():
        out[open_ & (found == category)] = STACK_PREFIX + code
    return out


_SITES = {"activation": "same_site_activation", "temporary": "same_site_temporary"}


def standing(at: Places) -> Objects:
    """Rule of blocks that stood before the records and throughout them, by where their stacks stand (``at``: one per block)."""
    cases = {"optimizer_kept": _OPTIMIZER, "backward_kept": _BACKWARD, "module_state": _MODULE, "gathered": _GATHER, "communication": _COMMUNICATION}
    return np.select([at.code == c for c in cases.values()], [STACK_PREFIX + r for r in cases], "before_recording").astype(object)


def freed_from_before(at: Places, freed: Rows, nbytes: Rows, sizes: Rows, rule: Objects) -> Objects:
    """Rule of blocks that stood before the records, by what freed them.

    Args:
        at: the places of the records.
        freed: the record that freed each.
        nbytes: its bytes.
        sizes: bytes of the blocks that the records made.
        rule: their rules.
    """
    here = at.code[freed]
    # where the records begin within a step, what it frees may be its own temporary memory
    gone = (here == _OPTIMIZER) & (_first(at.code, (_PLAIN, _FORWARD, _BACKWARD)) < freed)
    new = pd.Series(sizes[rule == STACK_PREFIX + "optimizer_kept"]).value_counts()
    old = pd.Series(nbytes[gone]).value_counts()
    as_many = new.reindex(old.index, fill_value=0) >= old
    replaced = gone & np.isin(nbytes, as_many.index[as_many])
    out = np.where(replaced, STACK_PREFIX + "replaced", "before_recording").astype(object)
    out[here == _ZERO] = STACK_PREFIX + "zeroed"
    return out


def _first(code: Rows, wanted: tuple[int, ...]) -> int:
    """The first record that stands in one of some places; their number where there is none."""
    return int(np.append(np.flatnonzero(np.isin(code, wanted)), len(code))[0])


def _next(code: Rows, wanted: tuple[int, ...], after: Rows) -> Rows:
    """The first record after each one that stands in one of some places; their number where there is none."""
    rows = np.append(np.flatnonzero(np.isin(code, wanted)), len(code))
    return rows[np.searchsorted(rows[:-1], after, "right")]


def _next_other(code: Rows, after: Rows) -> Rows:
    """The first record after each one that stands in another place; their number where there is none."""
    turn = np.append(np.flatnonzero(np.diff(code)) + 1, len(code))
    return turn[np.searchsorted(turn[:-1], after, "right")]
