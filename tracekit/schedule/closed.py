"""How large is the bubble of a schedule on paper, with uniform stages and free sends, exactly as the window counts it?

The published forms hold under conditions that papers leave unsaid (enough microbatches, no weight gradient longer than
a forward) and in denominators of their own (Zero Bubble's Table 2 counts from a stage's own first action, so a later
start is no bubble). The forms here are for this package's two denominators, hold for all times where they give a number,
and are tested against the simulation; where none is proven they give None.
"""

from __future__ import annotations


def window_bubble(name: str, p: int, m: int, v: int = 1, f: float = 1.0, i: float = 1.0, w: float = 1.0) -> float | None:
    """Time of the window (first action start to last action end of all ranks) in which a rank does not work.

    - ``gpipe``, ``1f1b``: (p-1)(F+I+W) (arXiv:1811.06965, 2104.04473 section 2.2.1)
    - ``interleaved_1f1b``, ``looped_bfs``: (p-1)(F+I+W)/v (2104.04473 section 2.2.2, 2211.05953); with m < p each of the v-1
      turns waits p-m forwards and backwards more
    - ``zb_h1``, m >= p: (p-1) max(F+I-W, F, I); ``zb_h2``, m >= 2p-1: (p-1) max(F+I-2W, F, I-F) (2401.10241 Table 2; the
      other terms: the last rank starts (p-1)F late, and the first input gradient comes (p-1)I late)
    - ``interleaved_zb``, m >= p: (p-1) max(F+I-W, F, I)/v
    - ``zbv``, F = I = W, m >= 2p-1: (p-1)F/2, all of it the later start of later ranks (2401.10241 section 6)
    - ``dualpipev``, F = I >= W, m >= 2p, pairs as long as their parts: (p-1)(F+2I-W)/2, DualPipe's (PP/2-1)(F&B+B-3W)
      (github.com/deepseek-ai/DualPipe)

    Args:
        name: a schedule's name.
        p: ranks of the pipeline.
        m: microbatches.
        v: stages per rank.
        f: time of one forward of a rank's stages together, in any unit.
        i: time of one input gradient.
        w: time of one weight gradient.

    Returns:
        The time, in the unit of ``f``, the same for every rank; None where no closed form is known.

    >>> window_bubble("zb_h1", p=4, m=8, f=3, i=4, w=2), window_bubble("zb_h2", p=4, m=8, f=3, i=4, w=2)
    (15, 9)
    """
    if min(p, m, v) < 1 or min(f, i, w) < 0:
        return None
    if name in ("gpipe", "1f1b"):
        return (p - 1) * (f + i + w)
    if name in ("interleaved_1f1b", "looped_bfs"):
        return (p - 1 + (v - 1) * max(0, p - m)) * (f + i + w) / v
    if name == "zb_h1" and m >= p:
        return (p - 1) * max(f + i - w, f, i)
    if name == "zb_h2" and m >= 2 * p - 1:
        return (p - 1) * max(f + i - 2 * w, f, i - f)
    if name == "interleaved_zb" and m >= p:
        return (p - 1) * max(f + i - w, f, i) / v
    if name == "zbv" and f == i == w and m >= 2 * p - 1:
        return (p - 1) * f / 2
    if name == "dualpipev" and f == i >= w and m >= 2 * p:
        return (p - 1) * (f + 2 * i - w) / 2
    return None


def longest_span_bubble(name: str, p: int, m: int, v: int = 1, f: float = 1.0, i: float = 1.0, w: float = 1.0) -> float | None:
    """The same of the longest span of one rank, own first action start to own last action end (arXiv:2401.10241 section 5.3).

    ``zb_h1``, m >= p: (p-1) max(F+I-W, I); ``zb_h2``, m >= 2p-1: (p-1) max(F+I-2W, I-F, 0), which with W <= F is that
    paper's Table 2; ``zbv``, F = I = W: 0; the first rank of the others spans the window.

    Args and return as in :func:`window_bubble`.

    >>> longest_span_bubble("zb_h2", p=4, m=8, f=3, i=3, w=3), window_bubble("zb_h2", p=4, m=8, f=3, i=3, w=3)
    (0, 9)
    """
    whole = window_bubble(name, p, m, v, f, i, w)
    if whole is None or name == "interleaved_zb":
        return None
    if name == "zb_h1":
        return (p - 1) * max(f + i - w, i)
    if name == "zb_h2":
        return (p - 1) * max(f + i - 2 * w, i - f, 0)
    return 0 if name == "zbv" else whole


def window_bubble_ratio(name: str, p: int, m: int, v: int = 1, f: float = 1.0, i: float = 1.0, w: float = 1.0) -> float | None:
    """:func:`window_bubble` over the window: what ``bubble_ratio`` of a measured or simulated pipeline is to be held against.

    >>> window_bubble_ratio("1f1b", p=4, m=8) == 3 / 11
    True
    """
    bubble = window_bubble(name, p, m, v, f, i, w)
    work = m * (f + i + w)
    return None if bubble is None or not bubble + work else bubble / (bubble + work)
