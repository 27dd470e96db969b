"""The operations of a CommPlan, as the steps of Magus see them: rows and columns of buffers, and who waits for whom."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from graphlib import CycleError, TopologicalSorter
from math import prod
from typing import Any

from ...codes import Code
from ...ir import IndexRange
from ...text.diagnostics import Stopped
from ...text.json_forms import SHORT_TEXT, Form, Item, list_form, record, unread, variants, whole, word
from ...text.vocabulary import MAX_EXTENT, MAX_STREAMS
from ..forms import MAX_STEPS
from .python import CLASS, FIELDS, PLANS

MAX_AXES = 8
Key = tuple[int, int, int]
"""An operation: rank, stream, and place in the stream."""


class CommKind(Enum):
    """What an operation does; the value is its name in Syncopate."""

    PUSH = "TransferOp.PUSH"
    PULL = "TransferOp.PULL"
    LOCAL_COPY = "TransferOp.LOCAL_COPY"


@dataclass(frozen=True, slots=True)
class BufferPart:
    """``rows`` and ``cols`` of the buffer called ``buffer``, whose rows are those of the moved tensor."""

    buffer: str
    rows: IndexRange
    cols: IndexRange


@dataclass(frozen=True, slots=True)
class CommOp:
    """A copy between ranks, or inside one (``peer`` None); ``adds`` into its target; ``after`` operations of any rank.

    ``computed``: it also waits for a kernel.
    """

    kind: CommKind
    source: BufferPart
    target: BufferPart
    peer: int | None
    adds: bool
    after: tuple[Key, ...]
    computed: bool
    item: Item

    def beyond(self, why: str, hint: str = "") -> Stopped:
        """Report that no plan does this operation."""
        return self.item.fail(why, hint, Code.MGS526)


def _call(name: str, forms: Mapping[str, Form[Any]], least: int) -> Form[dict[str, Any]]:
    """A call of a class of Syncopate, which has its first ``least`` fields; those without a form are not looked at."""
    known = {key: forms.get(key, _ANY) for key in FIELDS[name]}
    is_it: dict[str, Form[Any]] = {CLASS: word({name: None})}
    required = {key: known[key] for key in FIELDS[name][:least]}
    return record(dict, is_it | required, {key: form for key, form in known.items() if key not in required})


_ANY: Form[Item] = Form(lambda item: item, {})
_COUNT = whole(0, MAX_EXTENT)
_AXIS = _call("AxisSlice", {"start": _COUNT, "end": _COUNT}, 2)


def _axis(item: Item) -> tuple[int, int]:
    """A range of an axis: a call, or its two ends."""
    if isinstance(item.value, list):
        start, end = (each.number(0, MAX_EXTENT) for each in item.items(2, least=2))
    else:
        said = _AXIS.read(item)
        start, end = said["start"], said["end"]
    if start >= end:
        raise item.fail(f"{start}:{end} is empty")
    return start, end


_AXES = list_form(Form(_axis, {}), MAX_AXES, 1)
_ONE: dict[str, Form[Any]] = {
    "elem_size": whole(1, 64),
    "strides": list_form(_COUNT, MAX_AXES, 1),
    "base_offset": _COUNT,
}
REGION = variants(
    CLASS,
    "a region",
    {
        ("BufferRegion",): _call("BufferRegion", {**_ONE, "regions": list_form(_AXES, 1, 1)}, 3),
        ("BufferRegion.from_slices",): _call("BufferRegion.from_slices", {**_ONE, "slices": _AXES}, 3),
    },
)
_RANK = whole(0, MAX_EXTENT)
_XFER = _call(
    "XferDependency",
    {"depend_rank": _RANK, "depend_xfer_stream": whole(0, MAX_STREAMS - 1), "depend_xfer_idx": whole(0, MAX_STEPS)},
    3,
)
_OP: dict[str, Form[Any]] = {"src_buf": SHORT_TEXT, "dst_buf": SHORT_TEXT}
_TRANSFER = _call(
    "Transfer",
    {**_OP, "op": word({each.value: each for each in CommKind}), "dependency": list_form(_ANY, MAX_STEPS)},
    6,
)
DEVICE = _call("DevicePlan", {"dev": _RANK, "xfer": list_form(list_form(_ANY, MAX_STEPS), MAX_STREAMS)}, 1)
_ANY_PLAN = variants(CLASS, "a plan", {(name,): _call(name, {"device_plans": unread(_ANY)}, 1) for name in PLANS})


@dataclass(frozen=True, slots=True)
class CommPlan:
    """The operations of every rank by their keys."""

    ops: Mapping[Key, CommOp]
    document: Item

    @classmethod
    def read(cls, document: Item, ranks: int, cols: int, elem_bytes: int) -> "CommPlan":
        """Return what the ``document`` says, for so many ``ranks``, and rows of ``cols`` elements."""
        members = {key: each for key, each in document.members().items() if key != "magus"}
        devices = _ANY_PLAN.read(Item({key: each.value for key, each in members.items()}, "", document.origin))
        by_rank = devices["device_plans"].members()
        if set(by_rank) != set(map(str, range(ranks))):
            known = ", ".join(sorted(by_rank))[:64]
            message = f"plans of {f'devices {known}' if known else 'no device'} are here, there are {ranks} ranks"
            raise devices["device_plans"].fail(message, code=Code.MGS524)
        ops: dict[Key, CommOp] = {}
        for rank in range(ranks):
            said = DEVICE.read(by_rank[str(rank)])
            if said["dev"] != rank:
                raise by_rank[str(rank)].fail(f"device {rank} has the plan of device {said['dev']}")
            for stream, items in enumerate(said.get("xfer", ())):
                for place, item in enumerate(items):
                    ops[rank, stream, place] = _op(item, (rank, ranks), cols, elem_bytes)
        return cls(ops, document)

    @property
    def apart(self) -> bool:
        """Whether what arrives comes into a buffer of its own."""
        return any(op.source.buffer != op.target.buffer for op in self.ops.values())

    @property
    def adds(self) -> bool:
        """Whether what arrives is added to what is there."""
        return any(op.adds for op in self.ops.values())

    def slots(self) -> dict[Key, int]:
        """Return when each operation begins at the earliest, if all take one unit: the wave of its rows.

        Raises
        ------
        KeyError
            If an operation waits for one that is not there.
        ValueError
            If operations wait for each other.
        """
        waits = {key: [*op.after, *((key[0], key[1], key[2] - 1),) * (key[2] > 0)] for key, op in self.ops.items()}
        return first_slots(waits)


def first_slots(waits: Mapping[Key, Iterable[Key]]) -> dict[Key, int]:
    """Return the longest path to each operation; ``waits`` are those before it. Errors as ``CommPlan.slots``."""
    slots: dict[Key, int] = {}
    try:
        for key in TopologicalSorter(waits).static_order():
            slots[key] = max((slots[before] + 1 for before in waits[key]), default=0)
    except CycleError:
        raise ValueError("operations wait for each other") from None
    return slots


def _op(item: Item, of: tuple[int, int], cols: int, elem_bytes: int) -> CommOp:
    """An operation of the rank, among so many of them, that ``of`` gives."""
    members = item.members()
    if CLASS in members and members[CLASS].value == "Collective":
        message, hint = "a collective of a library moves everything in one call", "engine=sm(16, library) in Magus"
        raise item.fail(message, hint, Code.MGS526)
    said = _TRANSFER.read(item)
    kind, between = said["op"], said["op"] is not CommKind.LOCAL_COPY
    peer = members["peer"] if "peer" in members and members["peer"].value is not None else None
    if (peer is not None) is not between:
        raise item.fail("a push and a pull have a peer, a local copy has none")
    reduce = members["reduce_op"].value if "reduce_op" in members else None
    if reduce not in (None, "ReduceOp.SUM"):
        raise members["reduce_op"].fail(f"{str(reduce)[:64]} is no sum", code=Code.MGS526)
    source, target = (_part(members[f"{end}_region"], said[f"{end}_buf"], cols, elem_bytes) for end in ("src", "dst"))
    waits = said.get("dependency", ())
    after = tuple(_XFER.read(each) for each in waits if not _of_kernel(each))
    keys = tuple((each["depend_rank"], each["depend_xfer_stream"], each["depend_xfer_idx"]) for each in after)
    to = None if peer is None else peer.number(0, of[1] - 1)
    if to == of[0]:
        raise item.fail(f"rank {to} is no peer of itself")
    return CommOp(kind, source, target, to, reduce is not None, keys, len(after) < len(waits), item)


def _of_kernel(item: Item) -> bool:
    return item.members().get(CLASS, item).value == "ComputeDependency"


def _part(item: Item, buffer: str, cols: int, elem_bytes: int) -> BufferPart:
    """Return a region as rows and columns, from the bytes that it covers: as many axes as it has may be one."""
    if item.value is None:
        raise item.fail("a region that is known at run time alone", code=Code.MGS526)
    said = REGION.read(item)
    axes, strides, size = said.get("slices") or said["regions"][0], said["strides"], said["elem_size"]
    if len(axes) != len(strides):
        raise item.fail(f"{len(axes)} axes, and strides of {len(strides)}")
    row = cols * elem_bytes
    first = said.get("base_offset", 0) + size * sum(start * by for (start, _), by in zip(axes, strides, strict=True))
    runs, run = list[tuple[int, int]](), size
    for (start, end), by in reversed(list(zip(axes, strides, strict=True))):
        if by * size == run and not runs:
            run *= end - start
        elif end - start > 1:
            runs.append((end - start, by * size))
    counts = [count for count, _ in runs]
    evenly = all(by == row * prod(counts[:at]) for at, (_, by) in enumerate(runs))
    whole_rows = not runs and first % row == 0 and run % row == 0
    if whole_rows:
        return BufferPart(buffer, IndexRange(first // row, (first + run) // row), IndexRange(0, cols))
    if not evenly or first % row + run > row or first % elem_bytes or run % elem_bytes:
        raise item.fail(f"no rows of {cols} elements of {elem_bytes} bytes", code=Code.MGS526)
    start, col = first // row, first % row // elem_bytes
    return BufferPart(buffer, IndexRange(start, start + prod(counts)), IndexRange(col, col + run // elem_bytes))
