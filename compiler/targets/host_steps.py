"""Copies and sums beside a persistent GEMM kernel, as data, and a plain loop that carries them out.

``triton.py`` copies what stands below the imports into the files that it writes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# Copied into files.


class Copy(NamedTuple):
    """Rank ``source`` has ``size`` (rows, columns) of a buffer at ``source_at``; ``target`` gets it at ``target_at``.

    The rank that issues the copy waits for its flags ``waits`` first. Copies of one ``lane`` run one after the other;
    -1: any lane. ``flag`` of ``target`` is set when all has arrived, and ``done`` of the issuer; -1: no flag.
    """

    name: str
    source: int
    source_buffer: str
    source_at: tuple[int, int]
    target: int
    target_buffer: str
    target_at: tuple[int, int]
    size: tuple[int, int]
    waits: tuple[int, ...]
    lane: int
    flag: int
    done: int


class Sum(NamedTuple):
    """``size`` of buffer ``y`` at ``at`` becomes the sum of what buffer ``own`` has there and of ``parts``.

    These are places in the buffer ``parts``. ``waits`` and ``done`` are as for copies.
    """

    name: str
    at: tuple[int, int]
    size: tuple[int, int]
    own: str
    parts: tuple[tuple[int, int], ...]
    waits: tuple[int, ...]
    done: int


class Host(NamedTuple):
    """What the host of a rank acts on: buffers and flags of all ranks, and by how much a call raises its own flags."""

    rank: int
    buffers: Sequence[Mapping[str, Any]]
    flags: Sequence[Any]
    counts: Sequence[int]


def carry_out_ready(steps: Sequence[Copy | Sum], host: Host, epoch: int) -> list[Copy | Sum]:
    """Carry out the steps whose flags are set in the call number ``epoch``; return the others, to be tried again.

    This is the reference. On GPUs a copy is, on the stream of its lane: waits for its flags (cuStreamWaitValue32, at
    least ``epoch`` times their count), the copy, and a write of ``epoch`` to its own flags (cuStreamWriteValue32).
    """
    mine, left, busy = host.flags[host.rank], list[Copy | Sum](), set[int]()
    for step in steps:
        lane = step.lane if isinstance(step, Copy) else -1
        if lane in busy or not all(is_set(mine[flag], host.counts[flag], epoch) for flag in step.waits):
            left.append(step)
            busy |= {lane} - {-1}
        elif isinstance(step, Copy):
            copy(step, host.buffers)
            set_flag(host.flags[step.target], step.flag, epoch)
            set_flag(mine, step.done, epoch)
        else:
            add_up(step, host.buffers[host.rank])
            set_flag(mine, step.done, epoch)
    return left


def is_set(flag: Any, count: int, epoch: int) -> bool:
    """Whether a flag has reached its value of this call; flags are int32 and may wrap around."""
    return (int(flag) - epoch * count) % 2**32 < 2**31


def set_flag(flags: Any, flag: int, epoch: int) -> None:
    """Set a flag, if there is one."""
    if flag >= 0:
        flags[flag] = epoch


def copy(step: Copy, buffers: Sequence[Mapping[str, Any]]) -> None:
    """Copy one piece."""
    (row, col), (to_row, to_col), (rows, cols) = step.source_at, step.target_at, step.size
    piece = buffers[step.source][step.source_buffer][row : row + rows, col : col + cols]
    buffers[step.target][step.target_buffer][to_row : to_row + rows, to_col : to_col + cols] = piece


def add_up(step: Sum, buffers: Mapping[str, Any]) -> None:
    """Add the parts of one piece."""
    (row, col), (rows, cols) = step.at, step.size
    total = buffers[step.own][row : row + rows, col : col + cols]
    for top, left in step.parts:
        total = total + buffers["parts"][top : top + rows, left : left + cols]
    buffers["y"][row : row + rows, col : col + cols] = total
