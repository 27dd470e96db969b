"""GEMMs and collectives of a Chakra trace of PyTorch (MLCommons Chakra, et_def.proto 0.0.4), one file a rank.

The converter of Chakra writes durations, and no time at which a kernel began: what ran beside what is not known. The
shapes of a GEMM are those of the operation above its kernel. ``process_group:init`` says how many ranks a group has.
Traces that were made for a simulator have no shapes.
"""

import ast
import json
from collections.abc import Iterator, Mapping
from itertools import islice

from ....compiler.ir import DType
from .chrome import TraceError
from .run import (
    DTYPES,
    MAX_KEPT,
    Product,
    TracedCollective,
    TracedGemm,
    TracedKernel,
    TracedRun,
    Unused,
    product_of,
    reported,
    traced,
)

MAX_RECORD = 16 << 20
MAX_RECORDS = 20_000_000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES = 10

Field = tuple[int, int | bytes]
"""A number of the schema with a whole number, or with the bytes of a text, a message or a number of fixed length."""


def records(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield each record.

    Raises
    ------
    TraceError
        If the data end within a record, or one is too long.
    """
    data, at = b"", 0
    for _ in range(MAX_RECORDS):
        data, at = _filled(data, at, _VARINT_BYTES, pieces), 0
        if not data:
            return
        size, start = _varint(data, 0)
        if size > MAX_RECORD:
            raise TraceError("a record is too long")
        data = _filled(data, start, size, pieces)
        if len(data) < size:
            raise TraceError("it ends within a record")
        yield data[:size]
        at = size
    raise TraceError(f"it has more than {MAX_RECORDS:,} records")


def fields(record: bytes) -> Iterator[Field]:
    """Yield the fields of a message in their order.

    Raises
    ------
    TraceError
        If it is no message.
    """
    at = 0
    while at < len(record):
        key, at = _varint(record, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(record, at)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = _varint(record, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise TraceError("no message of protobuf")
        if number == 0 or at + size > len(record):
            raise TraceError("no message of protobuf")
        yield number, record[at : at + size]
        at += size


def packed_numbers(packed: bytes) -> Iterator[int]:
    """Yield the whole numbers of a field that repeats them.

    Raises
    ------
    TraceError
        If they are none.
    """
    at = 0
    while at < len(packed):
        value, at = _varint(packed, at)
        yield value


def _filled(data: bytes, at: int, size: int, pieces: Iterator[bytes]) -> bytes:
    """The rest of ``data`` from ``at`` on, with as many pieces more as ``size`` bytes take, if there are so many."""
    parts, found = [data[at:]], len(data) - at
    while found < size and (piece := next(pieces, b"")):
        parts.append(piece)
        found += len(piece)
    return b"".join(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, where it ends)."""
    value = 0
    for place, byte in enumerate(data[at : at + _VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise TraceError("no message of protobuf")


MAX_LITERAL = 1 << 16
"""Characters of shapes, types or groups that are read."""
_MAX_RANKS = 1 << 16
_LONGEST_US = 10**12
# Fields of a node, of its inputs, of an attribute, and of the metadata in front.
_ID, _NAME, _TYPE, _CTRL_DEPS, _START, _DURATION, _INPUTS, _ATTRIBUTE = 1, 2, 3, 4, 6, 7, 8, 10
_NUMBERS = {_ID: "id", _TYPE: "type", _CTRL_DEPS: "parent", _START: "start_us", _DURATION: "duration_us"}
"""Fields of a node that are whole numbers, by what they are called here."""
_VALUES, _SHAPES, _TYPES = 1, 2, 3
_INT64, _BOOL, _STRING = 9, 27, 29
_VERSION = 1
# Values of NodeType and CollectiveCommType.
_COMPUTE, _COLLECTIVE = 4, 7
_OPERATIONS = {0: "all_reduce", 2: "all_gather", 6: "all_to_all", 7: "reduce_scatter"}
_MAIN, _BESIDE = 7, 24
"""Streams of kernels and of collectives where a node says none: any that differ."""
_GROUPS = "process_group:init"


def is_chakra(pieces: Iterator[bytes]) -> bool:
    """Whether data are a Chakra trace: a record with a version, then one with an id or a name."""
    try:
        head, node = islice(records(pieces), 2)
        version = dict(fields(head)).get(_VERSION)
        named = dict(fields(node))
    except (TraceError, ValueError):
        return False
    return isinstance(version, bytes) and version[:1].isdigit() and isinstance(named.get(_NAME), bytes)


def read_chakra(pieces: Iterator[bytes]) -> TracedRun:
    """Return the GEMMs and collectives of a trace.

    Raises
    ------
    TraceError
        If the data are no records of protobuf from the start.
    """
    reader = _Reader()
    nodes = records(pieces)
    next(nodes, None)
    note = ""
    try:
        for node in nodes:
            reader.take(node)
    except TraceError as error:
        if not reader.num_nodes:
            raise
        note = f"the trace ends early or is damaged ({error})"
    return reader.run(note)


class _Node:
    """What is read of one node."""

    def __init__(self, record: bytes) -> None:
        self.id, self.type, self.start_us, self.duration_us = 0, 0, 0, 0
        self.name, self.parent = "", -1
        self._inputs: dict[int, str] = {}
        self.attributes: dict[str, int | str] = {}
        for number, value in fields(record):
            if isinstance(value, int):
                if number in _NUMBERS:
                    setattr(self, _NUMBERS[number], value)
            elif number == _NAME:
                self.name = _text(value)
            elif number == _CTRL_DEPS:  # packed
                self.parent = next(packed_numbers(value), -1)
            elif number == _INPUTS:
                self._inputs = {key: _text(each) for key, each in fields(value) if isinstance(each, bytes)}
            elif number == _ATTRIBUTE:
                self._take_attribute(value)

    def inputs(self, number: int) -> object:
        """The inputs, which are written as Python writes lists; None where they are not."""
        text = self._inputs.get(number, "")
        if not text or len(text) > MAX_LITERAL:
            return None
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return None

    def types(self) -> list[str]:
        """The element types of the inputs, without ``Tensor(...)`` around them."""
        found = self.inputs(_TYPES)
        return (
            [str(each).removeprefix("Tensor(").removesuffix(")") for each in found] if isinstance(found, list) else []
        )

    def _take_attribute(self, record: bytes) -> None:
        name = ""
        found: int | str | None = None
        for number, value in fields(record):
            if number == 1 and isinstance(value, bytes):
                name = _text(value)
            elif number in (_INT64, _BOOL) and isinstance(value, int):
                found = value
            elif number == _STRING and isinstance(value, bytes):
                found = _text(value)
        if found is not None:
            self.attributes[name] = found


class _Reader:
    def __init__(self) -> None:
        self.num_nodes, self._num_kernels, self._now_us = 0, 0, 0.0
        self._shapes: dict[int, Product | str] = {}
        self._has_shapes, self._unused = False, Unused()
        self._spans: dict[int, tuple[float, float]] = {}
        self._collectives: list[tuple[str, int, str, DType, int]] = []  # the last is the place of its kernel
        self._groups: dict[str, int] = {}
        self._has_times = True
        self._kernels: list[tuple[str, int, int, float, float]] = []  # name, stream, operation, begin, end

    def take(self, record: bytes) -> None:
        """Take up one node."""
        node = _Node(record)
        self.num_nodes += 1
        if _GROUPS in node.name:
            self._take_groups(node)
            return
        if max(len(self._shapes) + len(self._spans) + len(self._collectives), len(self._kernels)) >= MAX_KEPT:
            return
        if node.attributes.get("is_cpu_op", 1):
            dims = node.inputs(_SHAPES)
            self._has_shapes = self._has_shapes or (isinstance(dims, list) and any(dims))
            product = product_of(node.name, dims, node.types())
            if product is not None:
                self._shapes[node.id] = product
        elif node.duration_us > 0 and node.type in (_COMPUTE, _COLLECTIVE):
            self._take_kernel(node)

    def _take_kernel(self, node: _Node) -> None:
        self._num_kernels += 1
        self._has_times = self._has_times and node.start_us > 0
        start = float(node.start_us) if self._has_times else self._now_us
        span = start, start + min(node.duration_us, _LONGEST_US)
        self._now_us = span[1]
        stream = node.attributes.get("stream", _MAIN if node.type == _COMPUTE else _BESIDE)
        self._kernels.append((node.name[:512], stream if isinstance(stream, int) else _MAIN, node.parent, *span))
        if node.type == _COMPUTE:
            first, last = self._spans.get(node.parent, span)
            self._spans[node.parent] = min(first, span[0]), max(last, span[1])
            return
        kind, size = node.attributes.get("comm_type", 0), node.attributes.get("comm_size")
        names = [each.removeprefix("c10::") for each in node.types()]
        dtype = next((DTYPES[each] for each in names if each in DTYPES), None)
        if kind in _OPERATIONS and isinstance(kind, int) and isinstance(size, int) and dtype is not None and size > 0:
            group = str(node.attributes.get("pg_name", ""))
            place = len(self._kernels) - 1
            self._collectives.append((_OPERATIONS[kind], size // dtype.bytes_of(1), group, dtype, place))
        else:
            why = "without a type that is simulated" if kind in _OPERATIONS else "that no pair has"
            self._unused["collective", why] += 1

    def _take_groups(self, node: _Node) -> None:
        """Remember how many ranks each group has: a list of objects in JSON, within the values of the node."""
        values = node.inputs(_VALUES)
        text = next((each for each in values if isinstance(each, str)), "") if isinstance(values, list) else ""
        try:
            groups = json.loads(text)
        except (ValueError, RecursionError):
            return
        for group in groups if isinstance(groups, list) else ():
            size = group.get("group_size") if isinstance(group, dict) else None
            if isinstance(size, int) and 0 < size <= _MAX_RANKS:
                self._groups[str(group.get("pg_name"))] = size

    def run(self, note: str) -> TracedRun:
        """Return what was found."""
        notes = [note] if note else []
        if not self._has_times:
            notes.append("the trace does not say when kernels began: what they hid of each other is not known")
        unknown = sum(group not in self._groups for _, _, group, *_ in self._collectives)
        if unknown:
            notes.append(f"{unknown} collectives are of a group whose ranks the trace does not tell: left out")
        gemms = dict[int, TracedGemm]()
        for key, span in self._spans.items():
            product = self._shapes.get(key)
            if isinstance(product, Product):
                gemms[key] = traced(product, *span)
            elif product is not None:
                self._unused["GEMM", product] += 1
        return TracedRun(
            "Chakra",
            self._has_times,
            "",
            None,
            tuple(self._all_kernels(gemms)),
            self._num_kernels,
            tuple(notes),
            reported(self._unused),
            self._has_shapes,
        )

    def _all_kernels(self, gemms: Mapping[int, TracedGemm]) -> Iterator[TracedKernel]:
        """Yield all kernels in the order of time; those of one GEMM are one."""
        moving, seen = dict(self._sized_collectives()), set[int]()
        for place, (name, stream, parent, start, end) in sorted(enumerate(self._kernels), key=lambda each: each[1][3]):
            gemm = gemms.get(parent)
            if gemm is None:
                yield TracedKernel(name, stream, start, end, moving.get(place))
            elif parent not in seen:
                yield TracedKernel(name, stream, gemm.start_us, gemm.end_us, gemm)
            seen.add(parent)

    def _sized_collectives(self) -> Iterator[tuple[int, TracedCollective]]:
        """Yield the collectives with elements in and out by their place; Chakra writes the bytes that go in."""
        for operation, num_in, group, dtype, place in self._collectives:
            ranks = self._groups.get(group)
            if ranks is not None:
                outs = {"all_gather": num_in * ranks, "reduce_scatter": num_in // ranks}
                size, span = (num_in, outs.get(operation, num_in), ranks, dtype), self._kernels[place][3:]
                yield place, TracedCollective(operation, *size, *span, dtype.bytes_of(1))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
