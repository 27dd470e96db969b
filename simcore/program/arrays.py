"""Arrays of a Program: made from sequences, grouped, ordered; ``program`` names their axes."""

from array import array
from collections.abc import Sequence
from contextlib import suppress
from typing import cast

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

NONE = -1
"""No pool, no next hop, no local id."""


def ints(values: Sequence[int] | Sequence[tuple[int, ...]]) -> Int64Array:
    """An int64 array, of zero length too.

    Raises
    ------
    ValueError
        If not all values are whole numbers, or the rows differ in length.
    OverflowError
        If one does not fit.
    """
    with suppress(TypeError):  # rows, and what is no whole number
        return np.array(array("q", cast("Sequence[int]", values)))
    found = np.array(values)
    if found.size and found.dtype.kind not in "iub":
        # Past 64 bits numpy keeps objects, and floats where numbers of 64 bits without a sign stand beside others.
        if all(isinstance(value, int) for value in np.array(values, object).flat):
            raise OverflowError
        raise ValueError(f"whole numbers are needed here, not {found.dtype} as in {found.flat[0]!r}")
    if found.dtype.kind == "u" and int(found.max()) > np.iinfo(np.int64).max:
        raise OverflowError
    return found.astype(np.int64, copy=False)


def starts(counts: Int64Array) -> Int64Array:
    """Pointers to the first entry of each row, and one past the last row."""
    pointers = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=pointers[1:])
    return pointers


def take_rows(pointers: Int64Array, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Take ``rows`` of a table held as pointers: new pointers, and for each new entry its index in the old table.

    Here as wherever there are millions, numpy's ``take`` needs a third of the time of indices in brackets.
    """
    first = pointers.take(rows)
    lengths = pointers.take(rows + 1) - first
    taken = starts(lengths)
    return taken, np.arange(taken[-1]) + np.repeat(first - taken[:-1], lengths)


def grouped(groups: Int64Array, num_groups: int) -> Int64Array:
    """Return the indices of ``groups`` by group, ascending in each; numbers of 16 bits are sorted in linear time."""
    few = num_groups <= np.iinfo(np.uint16).max
    return np.argsort(groups.astype(np.uint16) if few else groups, kind="stable")


def dependencies(sources: Int64Array, waiters: Int64Array, num_ops: int) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Edges as counts of waits [O], and as waiters by source: pointers [O + 1] and ops [E]."""
    check_named(num_ops, sources, waiters)
    by_source = np.argsort(sources, kind="stable")
    next_ptr = starts(np.bincount(sources, minlength=num_ops))
    return np.bincount(waiters, minlength=num_ops), next_ptr, waiters[by_source]


def check_named(num_ops: int, *ends: Int64Array) -> None:
    """Check that the ends of edges name ops that there are.

    Raises
    ------
    ValueError
        If one does not.
    """
    for each in ends:
        if len(each) and not 0 <= each.min() <= each.max() < num_ops:
            raise ValueError(f"a dependency names op {_outside(each, num_ops)}, but only {num_ops} ops are defined")


def _outside(ops: Int64Array, num_ops: int) -> int:
    return int(ops[(ops < 0) | (ops >= num_ops)][0])


def order_by(*keys: Int64Array) -> Int64Array:
    """Return the indices of ``keys`` in their order, the first of which counts first; of equals in that of indices.

    Where all of them and the index fit a number, as nearly always, those numbers are sorted: numpy does that several
    times as fast as it finds an order.
    """
    return order_and_groups(*keys)[0]


def order_and_groups(*keys: Int64Array) -> tuple[Int64Array, BoolArray]:
    """Return what ``order_by`` does, and whether other keys than before begin at each place of that order."""
    num = len(keys[0])
    begins = np.ones(num, np.bool_)
    width = max(0, num - 1).bit_length()  # of an index
    together = _in_one_number(keys, 63 - width)
    if together is None:
        order = np.lexsort(keys[::-1])  # where the last key counts first
        begins[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
        return order, begins
    if (together[1:] < together[:-1]).any():
        together <<= width
        together |= np.arange(num)
        together.sort()
        order = together & ((1 << width) - 1)
        together >>= width
    else:  # as ops are described, nearly always
        order = np.arange(num)
    np.not_equal(together[1:], together[:-1], out=begins[1:])
    return order, begins


def _in_one_number(keys: Sequence[Int64Array], most_bits: int) -> Int64Array | None:
    """The ``keys`` in one number each, whose order is theirs; None where that has more than ``most_bits``."""
    together, bits = np.zeros(len(keys[0]), np.int64), 0
    for key in keys:
        least = int(key.min(initial=0))
        width = (int(key.max(initial=0)) - least).bit_length()
        bits += width
        if bits > most_bits:
            return None
        if width:
            together <<= width
            together |= key - least if least else key
    return together


def tie_order(
    local_id: Int64Array, flow_of_op: Int64Array, hop_ptr: Int64Array, ranks_ahead: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array, Int64Array]:
    """Number the flow-hops in the order in which simultaneous units are served.

    Takes [F] local id and flow within the op, [F + 1] pointers to hops in route order, and [H] in that order how many
    ranks the op is ahead of the server, around. Returns [F] first hops, and [H] each: index in route order, flow,
    position in the route and next hop.
    """
    num_hops, lengths = int(hop_ptr[-1]), np.diff(hop_ptr)
    flow = np.repeat(np.arange(len(lengths)), lengths)
    index = np.arange(num_hops) - hop_ptr.take(flow)
    order = order_by(local_id.take(flow), flow_of_op.take(flow), index, ranks_ahead)
    is_last = index == lengths.take(flow) - 1
    if (order[1:] > order[:-1]).all():
        return hop_ptr[:-1], order, flow, index, np.where(is_last, NONE, order + 1)
    number = np.full(num_hops + 1, NONE, np.int64)
    number[order] = np.arange(num_hops)
    following = np.where(is_last, NONE, number[1:])
    return number.take(hop_ptr[:-1]), order, flow.take(order), index.take(order), following.take(order)


def previous_hops(hop_next: Int64Array) -> Int64Array:
    """[H] the hop a unit comes from, NONE where it is injected."""
    previous = np.full(len(hop_next), NONE, np.int64)
    inner = np.flatnonzero(hop_next != NONE)
    previous[hop_next[inner]] = inner
    return previous


def buffers_left(hop_buffer: Int64Array, previous: Int64Array) -> Int64Array:
    """[H] the buffer a unit comes through from the ``previous`` hop, and leaves when it is served; NONE without one."""
    return np.append(hop_buffer, NONE).take(previous)  # NONE is -1, the last


def buffer_feeders(num_buffers: int, hop_buffer: Int64Array, hop_server: Int64Array) -> Int64Array:
    """[B] the server that fills each buffer."""
    feeders = np.full(num_buffers, NONE, np.int64)
    buffered = hop_buffer != NONE
    feeders[hop_buffer[buffered]] = hop_server[buffered]
    return feeders
