"""What plain data does a pickle hold? Read without ever running anything that it asks for.

Python's own loader imports and calls whatever a pickle names. This one knows dictionaries, lists, tuples, texts, bytes,
numbers, True, False and None: what torch's Flight Recorder and memory snapshots are made of. Every other opcode (globals,
calls, objects, persistent ids, extensions, buffers) is refused by name, and nothing is imported, looked up or called.
A pickle may refer to what it already wrote, so a few hundred bytes can describe a value that is endless when walked:
depth and size of the whole value are measured before anyone walks it, and a value that holds itself is refused.
"""

from __future__ import annotations

import pickle
import pickletools
import re
import struct
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from itertools import chain, compress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from tracekit.errors import InputError
from tracekit.reading import Deadline, Reading

#: Deepest nesting; a memory snapshot has 6 levels, a Flight Recorder dump 5.
MAX_DEPTH = 64
#: Most values per byte of the pickle, shared parts counted wherever they are referred to. The events of a memory snapshot share
#: their stack frames and come to 1 or 2; a bomb has millions.
MAX_EXPANSION = 100
#: Bytes between two looks at the clock and the counts.
_CHUNK = 1 << 20
#: Containers that are looked into at once.
_BLOCK = 1 << 10
_CONTAINERS = frozenset({dict, list, tuple})
_KEYS = frozenset({str, int})
_NAMES = {ord(op.code): op.name for op in pickletools.opcodes}
_U8, _U16, _I32, _U32, _U64, _F64 = (struct.Struct(code).unpack_from for code in ("<B", "<H", "<i", "<I", "<Q", ">d"))
#: Opcodes of texts and bytes -> how their length is written, and in how many bytes.
_TEXTS = {0x8C: (_U8, 1), 0x58: (_U32, 4), 0x8D: (_U64, 8), 0x43: (_U8, 1), 0x42: (_U32, 4), 0x8E: (_U64, 8)}
_BYTES = frozenset({0x43, 0x42, 0x8E})
#: BININT1, BININT2, BININT and BINFLOAT; BINGET and LONG_BINGET; BINPUT and LONG_BINPUT: how their argument is written, and in how many bytes.
_NUMBERS = {0x4B: (_U8, 1), 0x4D: (_U16, 2), 0x4A: (_I32, 4), 0x47: (_F64, 8)}
_GETS = {0x68: (_U8, 1), 0x6A: (_U32, 4)}
_PUTS = {0x71: (_U8, 1), 0x72: (_U32, 4)}
#: NONE, NEWTRUE and NEWFALSE; EMPTY_DICT and EMPTY_LIST.
_CONSTANTS: dict[int, bool | None] = {0x4E: None, 0x88: True, 0x89: False}
_EMPTY: dict[int, type[dict[Any, Any]] | type[list[Any]]] = {0x7D: dict, 0x5D: list}
#: PROTO, and FRAME, which is only how the writer cut the stream: bytes to pass over.
_SKIPPED = {0x80: 2, 0x95: 9}
#: Opcodes that put values into a container: APPEND, APPENDS, SETITEM, SETITEMS, then EMPTY_TUPLE, TUPLE and TUPLE1 to TUPLE3.
_APPEND, _APPENDS, _SETITEM, _SETITEMS, _TUPLE = 0x61, 0x65, 0x73, 0x75, 0x74
_TUPLES = {0x29: 0, 0x85: 1, 0x86: 2, 0x87: 3}
_FILLS = frozenset({_APPEND, _APPENDS, _SETITEM, _SETITEMS, _TUPLE, *_TUPLES})
#: A run of opcodes that Python's own loader may be trusted with: no long texts, no numbers past 72 bits, no memo index that it would make
#: room for, no tuples but of two small numbers (it would hash any other as a key, without end where it is nested).
_PLAIN_RUN = re.compile(
    rb"(?:j.{4}|h.|[(\x94}\]euasN\x88\x89]|K.K.\x86|K.|M..|J.{4}|q.|G.{8}|\x80[\x02-\x05]|\x95.{8}|"
    + b"|".join(b"\x8a" + re.escape(bytes([size])) + b".{%d}" % size for size in range(10))
    + rb")*+",
    re.DOTALL,
)
#: Half a character, which Python's loader takes and nothing can write.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf]")


class Loaded(NamedTuple):
    """What a pickle held.

    Attributes:
        value: dictionaries (keys: texts, integers), lists and tuples of texts, bytes, numbers, True, False and None.
        end: the byte after its end; anything that follows was not read.
        cut: the byte at which a cut or damaged pickle stops being readable (``reading.salvage`` only; else None): the value holds
            what was whole before it.
    """

    value: Any
    end: int
    cut: int | None = None


class _Damaged(Exception):
    """A pickle that cannot go on: where, and why (said in one line)."""

    def __init__(self, says: str, byte: int) -> None:
        super().__init__(says)
        self.says, self.byte = says, byte


def is_pickle(head: bytes) -> bool:
    """Whether bytes begin like a pickle of protocol 2 to 5."""
    return len(head) >= 3 and head[0] == 0x80 and 2 <= head[1] <= 5


def load(data: bytes, path: Path, reading: Reading) -> Loaded:
    """The plain value in a pickle.

    Args:
        data: the whole pickle, protocol 2 to 5.
        path: for messages.
        reading: ``max_events`` caps containers and texts, ``max_seconds`` the time; ``salvage`` gives what a cut pickle still holds.

    Raises:
        InputError: an opcode that makes anything but plain data, a cut or damaged pickle, a cap passed, a value that holds itself.

    >>> import pickle
    >>> load(pickle.dumps({"entries": [(1, "a")]}), Path("dump"), Reading()).value
    {'entries': [(1, 'a')]}
    """
    if not is_pickle(data):
        raise InputError("not a pickle of protocol 2 to 5; dump it again with a current torch", path, 0)
    clock = reading.started()
    end = _plain_end(data, path, reading, clock)
    if end is not None:
        try:
            value = _NoGlobals(BytesIO(data)).load()
        except Exception:  # whatever it stumbled over: going through the opcodes one by one below names it
            end = None
        else:
            _measure(value, len(data), path, clock)
            return Loaded(value, end)
    stack: list[Any] = []
    marks: list[int] = []
    cut = None
    try:
        end = _run(data, stack, marks, path, reading, clock)
        if len(stack) != 1 or marks:
            raise _Damaged(f"damaged pickle: it ends at byte {end} with {len(stack)} values instead of one", end)
    except _Damaged as damage:
        if not reading.salvage or not stack:
            raise InputError(f"{damage.says}; copy or dump it again, or read what is whole with --salvage", path, damage.byte) from damage
        cut = end = damage.byte
        _close(stack, marks)
    _measure(stack[0], len(data), path, clock)
    return Loaded(stack[0], end, cut)


class _NoGlobals(pickle.Unpickler):
    """Python's own loader without its two doors, which a stream that is plain never knocks at."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError("no globals")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("no persistent ids")


def _plain_end(data: bytes, path: Path, reading: Reading, clock: Deadline) -> int | None:
    """The byte after the end of a pickle that holds nothing but texts and what :data:`_PLAIN_RUN` allows; None for every other one.

    Such a pickle is safe with Python's loader, which is 10 times as fast as going through the opcodes here.
    """
    i, texts = 0, 0
    while i < len(data):
        match = _PLAIN_RUN.match(data, i)
        i = match.end() if match else i
        code = data[i] if i < len(data) else 0
        if code == 0x2E:  # STOP
            return i + 1 if texts + data.count(b"}") + data.count(b"]") <= reading.max_events else None
        if code == 0x8C and i + 1 < len(data):  # SHORT_BINUNICODE
            start, i = i + 2, i + 2 + data[i + 1]
        elif code == 0x58 and i + 4 < len(data):  # BINUNICODE
            start, i = i + 5, i + 5 + _U32(data, i + 1)[0]
        else:
            return None
        text = data[start:i]
        if not text.isascii() and _SURROGATE.search(text):
            return None
        texts += 1
        if not texts & 0xFFFF:
            clock.check(path)
    return None


def _run(data: bytes, stack: list[Any], marks: list[int], path: Path, reading: Reading, clock: Deadline) -> int:
    """Run the opcodes until the end, filling the stack.

    Returns:
        The byte after the end.
    """
    memo: dict[int, Any] = {}
    push, made, i = stack.append, 0, 0
    try:
        while True:
            clock.check(path)
            if made > reading.max_events:
                raise InputError(f"holds more than {reading.max_events} containers and texts by byte {i}; raise --max-events", path, i)
            chunk = i + _CHUNK
            while i < chunk:
                code = data[i]
                # the most frequent first: this chain is what a large memory snapshot waits for
                if code in _GETS:
                    unpack, width = _GETS[code]
                    push(memo[unpack(data, i + 1)[0]])
                    i += 1 + width
                elif code == 0x94:  # MEMOIZE
                    memo[len(memo)] = stack[-1]
                    i += 1
                elif code in _NUMBERS:
                    unpack, width = _NUMBERS[code]
                    push(unpack(data, i + 1)[0])
                    i += 1 + width
                elif code == 0x28:  # MARK
                    marks.append(len(stack))
                    i += 1
                elif code == 0x8A:  # LONG1
                    end = i + 2 + data[i + 1]
                    push(int.from_bytes(_bytes(data, i + 2, end), "little", signed=True))
                    i = end
                elif code in _TEXTS:
                    unpack, width = _TEXTS[code]
                    start = i + 1 + width
                    end = start + unpack(data, i + 1)[0]
                    part = _bytes(data, start, end)
                    push(part if code in _BYTES else part.decode("utf-8", "replace"))
                    made, i = made + 1, end
                elif code in _FILLS:
                    _fill(code, stack, marks)
                    made, i = made + 1, i + 1
                elif code in _EMPTY:
                    push(_EMPTY[code]())
                    made, i = made + 1, i + 1
                elif code in _PUTS:
                    unpack, width = _PUTS[code]
                    memo[unpack(data, i + 1)[0]] = stack[-1]
                    i += 1 + width
                elif code in _CONSTANTS:
                    push(_CONSTANTS[code])
                    i += 1
                elif code in _SKIPPED:
                    i += _SKIPPED[code]
                elif code == 0x2E:  # STOP
                    return i + 1
                else:
                    _refuse(code, i, path)
    except struct.error as error:  # a number or text that reaches past the end
        raise _cut(data, i) from error
    except KeyError as error:
        raise _Damaged(f"damaged pickle: {_name(data, i)} at byte {i} refers to value {error}, which was not written", i) from error
    except (IndexError, TypeError, ValueError) as error:
        if i + 1 < len(data):
            raise _Damaged(f"damaged pickle: {_name(data, i)} at byte {i} does not fit the values before it", i) from error
        raise _cut(data, i) from error


def _refuse(code: int, i: int, path: Path) -> NoReturn:
    """An opcode that is none of those that write plain data."""
    if code not in _NAMES:
        raise _Damaged(f"damaged pickle: byte {i} ({code:#04x}) is no opcode", i)
    says = f"this pickle asks for {_NAMES[code]} at byte {i}, which is more than plain data: refused, and nothing in it was run"
    raise InputError(f"{says}; give a dump that torch itself wrote", path, i)


def _cut(data: bytes, i: int) -> _Damaged:
    """The file ends inside the opcode at a byte, or before its last one."""
    return _Damaged(f"cut pickle: it ends at byte {len(data)} without its last opcode, the one before begins at byte {i}", min(i, len(data)))


def _bytes(data: bytes, start: int, end: int) -> bytes:
    if end > len(data):
        raise struct.error
    return data[start:end]


def _fill(code: int, stack: list[Any], marks: list[int]) -> None:
    """One opcode that puts the values on top of the stack into a container.

    Raises:
        IndexError, TypeError, ValueError: the stack does not hold what it needs.
    """
    if code in (_APPENDS, _SETITEMS, _TUPLE):
        start = marks.pop()
    else:
        start = len(stack) - (1 if code == _APPEND else 2 if code == _SETITEM else _TUPLES[code])
    floor = (marks[-1] if marks else 0) + (code not in _TUPLES and code != _TUPLE)
    if not floor <= start <= len(stack):
        raise IndexError
    parts = stack[start:]
    del stack[start:]
    if code in (_APPEND, _APPENDS):
        if type(stack[-1]) is not list:
            raise TypeError
        stack[-1].extend(parts)
    elif code in (_SETITEM, _SETITEMS):
        keys = parts[::2]
        if type(stack[-1]) is not dict or not _KEYS.issuperset(map(type, keys)):
            raise TypeError
        stack[-1].update(zip(keys, parts[1::2], strict=True))
    else:
        stack.append(tuple(parts))


def _close(stack: list[Any], marks: list[int]) -> None:
    """Put what a cut pickle left open into place, down to one value; the record that was being written is left out."""
    starts = [m for m in marks if 0 < m <= len(stack)]
    opened = [stack[m - 1] for m in starts]
    # the first dictionary that stands directly in a list is the unfinished record
    record = next((k for k in range(1, len(opened)) if type(opened[k]) is dict and type(opened[k - 1]) is list), None)
    if record is not None:
        del stack[starts[record] - 1 :]
        del starts[record:]
    for start in reversed(starts):
        parts, target = stack[start:], stack[start - 1]
        del stack[start:]
        if type(target) is list:
            # a record of one value is filled without a mark: {}, key, value
            target.extend(parts[: next((k for k in range(max(len(parts) - 3, 0), len(parts)) if parts[k] == {}), None)])
        elif type(target) is dict:
            if len(parts) % 2 and len(parts) > 2 and type(parts[-2]) is list and type(parts[-1]) in _CONTAINERS:
                parts[-2].append(parts.pop())  # the only value of a list is put into it when it is whole
            pairs = zip(parts[::2], parts[1::2], strict=False)
            target.update((key, value) for key, value in pairs if type(key) in _KEYS)
    del stack[1:]


def _measure(value: Any, nbytes: int, path: Path, clock: Deadline) -> None:
    """Hold depth and size of the whole value against the caps: level by level, every shared part once per level with how often it stands there.

    Raises:
        InputError: a cap is passed, which a value that holds itself always does.
    """
    limit, total = max(MAX_EXPANSION * nbytes, 10_000), 1
    level = {id(value): value} if type(value) in _CONTAINERS else {}
    times: dict[int, int] = dict.fromkeys(level, 1)
    for _ in range(MAX_DEPTH):
        if not level:
            return
        if not all(_KEYS.issuperset(map(type, node)) for node in level.values() if type(node) is dict):
            raise InputError("this pickle holds a dictionary whose keys are neither texts nor integers, as no dump does; nothing in it was run", path)
        total += sum(times[key] * len(node) for key, node in level.items())
        if total > limit:
            raise InputError(f"this pickle would unfold to more than {limit} values from {nbytes} bytes, as no dump does; nothing in it was run", path)
        below: dict[int, Any] = {}
        count: Counter[int] = Counter()
        for often, nodes in _by_times(level, times).items():
            here: Counter[int] = Counter()
            for inner in _inner(nodes, path, clock):
                below.update(zip(map(id, inner), inner, strict=True))
                here.update(map(id, inner))
            count.update(here if often == 1 else {key: often * n for key, n in here.items()})
        level, times = below, count
    if level:
        raise InputError(f"this pickle nests values more than {MAX_DEPTH} deep, or holds one inside itself, as no dump does; nothing in it was run", path)


def _inner(nodes: list[Any], path: Path, clock: Deadline) -> Iterator[list[Any]]:
    """The containers in the containers, a block of these at a time."""
    for start in range(0, len(nodes), _BLOCK):
        clock.check(path)
        parts = list(chain.from_iterable(map(_parts, nodes[start : start + _BLOCK])))
        yield list(compress(parts, map(_CONTAINERS.__contains__, map(type, parts))))


def _by_times(level: dict[int, Any], times: dict[int, int]) -> dict[int, list[Any]]:
    """The containers of a level by how often they stand there."""
    out: dict[int, list[Any]] = {}
    for key, node in level.items():
        out.setdefault(times[key], []).append(node)
    return out


def _parts(node: Any) -> Any:
    return node.values() if type(node) is dict else node


def _name(data: bytes, at: int) -> str:
    return _NAMES.get(data[at], f"{data[at]:#04x}") if at < len(data) else "its end"
