"""Array steps by which described ops become a Program: tables held as pointers, dependencies, the order of ties."""

from collections.abc import Sequence

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
    array = np.array(values)
    if array.size and array.dtype.kind not in "iub":
        # Past 64 bits numpy keeps objects, and floats where numbers of 64 bits without a sign stand beside others.
        if all(isinstance(value, int) for value in np.array(values, object).flat):
            raise OverflowError
        raise ValueError(f"whole numbers are needed here, not {array.dtype} as in {array.flat[0]!r}")
    if array.dtype.kind == "u" and int(array.max()) > np.iinfo(np.int64).max:
        raise OverflowError
    return array.astype(np.int64, copy=False)


def starts(counts: Int64Array) -> Int64Array:
    """Pointers to the first entry of each row, and one past the last row."""
    pointers = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=pointers[1:])
    return pointers


def take_rows(pointers: Int64Array, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Take ``rows`` of a table held as pointers: new pointers, and for each new entry its index in the old table."""
    lengths = pointers[rows + 1] - pointers[rows]
    taken = starts(lengths)
    return taken, np.arange(taken[-1]) + np.repeat(pointers[rows] - taken[:-1], lengths)


def grouped(groups: Int64Array, num_groups: int) -> Int64Array:
    """Return the indices of ``groups`` by group, ascending in each; numbers of 16 bits are sorted in linear time."""
    few = num_groups <= np.iinfo(np.uint16).max
    return np.argsort(groups.astype(np.uint16) if few else groups, kind="stable")


def dependencies(sources: Int64Array, waiters: Int64Array, num_ops: int) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Edges as counts of waits [O], and as waiters by source: pointers [O + 1] and ops [E]."""
    for ends in (sources, waiters):
        if len(ends) and not 0 <= ends.min() <= ends.max() < num_ops:
            raise ValueError(f"a dependency names op {_outside(ends, num_ops)}, but only {num_ops} ops are defined")
    by_source = np.argsort(sources, kind="stable")
    next_ptr = starts(np.bincount(sources, minlength=num_ops))
    return np.bincount(waiters, minlength=num_ops), next_ptr, waiters[by_source]


def _outside(ops: Int64Array, num_ops: int) -> int:
    return int(ops[(ops < 0) | (ops >= num_ops)][0])


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
    index = np.arange(num_hops) - hop_ptr[flow]
    order = np.lexsort((ranks_ahead, index, flow_of_op[flow], local_id[flow]))  # the last key counts first
    number = np.empty(num_hops + 1, np.int64)
    number[order] = np.arange(num_hops)
    number[num_hops] = NONE
    following = np.where(index == lengths[flow] - 1, NONE, number[1:])
    return number[hop_ptr[:-1]], order, flow[order], index[order], following[order]


def previous_hops(hop_next: Int64Array) -> Int64Array:
    """[H] the hop a unit comes from, NONE where it is injected."""
    previous = np.full(len(hop_next), NONE, np.int64)
    inner = np.flatnonzero(hop_next != NONE)
    previous[hop_next[inner]] = inner
    return previous


def buffers_left(hop_buffer: Int64Array, hop_next: Int64Array) -> Int64Array:
    """[H] the buffer a unit comes through, which it leaves when it is served; NONE without one."""
    left: Int64Array = np.append(hop_buffer, NONE)[previous_hops(hop_next)]  # NONE is -1, the last
    return left


def buffer_feeders(num_buffers: int, hop_buffer: Int64Array, hop_server: Int64Array) -> Int64Array:
    """[B] the server that fills each buffer."""
    feeders = np.full(num_buffers, NONE, np.int64)
    buffered = hop_buffer != NONE
    feeders[hop_buffer[buffered]] = hop_server[buffered]
    return feeders
