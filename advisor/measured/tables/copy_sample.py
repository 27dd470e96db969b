"""Simulations of a random sample of measured copies by SMs, compared with the closed form.

Each GPU puts to its peers in turn, by all SMs that copy. There is no such sample of copies by DMA engines: their table
has the phases of a copy that the host issues and waits for, but the engines of a schedule take commands from a queue.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ....compiler.collectives import signal_of
from ....compiler.ir import (
    TICKS_PER_SECOND,
    Direction,
    DType,
    EngineChoice,
    EngineKind,
    IndexRange,
    OpCase,
    OpPlan,
    OpShape,
    Pattern,
    Region,
    Shard,
    Tensor,
    Transfer,
)
from ....simcore import simulate_op
from ....simcore.kernels.copy import sm_copy_rate
from .copies import SmCopies
from .samples import scenario_of
from .sim_vs_form import Agreement, agreement_of

COLUMNS = 64

MAX_UNITS = 32_768
"""Most units that one rank moves, several hundred for each SM; larger copies are simulated in coarser units."""


def sampled_copies(copies: Sequence[SmCopies], count: int, seed: int) -> Iterator[list[SmCopies]]:
    """Yield for each GPU ``count`` random copies, or all if there are fewer."""
    groups: dict[str, list[SmCopies]] = defaultdict(list)
    for copy in copies:
        groups[copy.gpu].append(copy)
    for group in groups.values():
        yield random.Random(seed).sample(group, min(count, len(group)))


def simulated_copies(copies: Sequence[SmCopies], advance: Callable[[], None]) -> Agreement | None:
    """Simulate ``copies``, all of one GPU; ``advance`` is called after each. None if there are none."""
    differences = []
    for copy in copies:
        differences.append((_difference(copy), f"{copy.label}, {copy.sms} SMs"))
        advance()
    return agreement_of(copies[0].gpu, "SM copy", differences) if copies else None


def _difference(copies: SmCopies) -> float:
    scenario, peers = scenario_of(copies.gpu, copies.ranks), range(1, copies.ranks)
    row_bytes = COLUMNS * DType.BF16.num_bytes
    rows = max(1, round(copies.remote_bytes / (len(peers) * row_bytes)))
    unit = scenario.gpu.line_bytes
    while rows * len(peers) * row_bytes > unit * MAX_UNITS:
        unit *= 2
    result = simulate_op(_exchange(scenario, rows), _by_all_sms(rows, peers, copies.sms), unit_bytes=unit)
    expected = rows * len(peers) * row_bytes / sm_copy_rate(scenario.gpu, copies.sms) * TICKS_PER_SECOND
    return abs(result.makespan_ticks / expected - 1)


def _exchange(scenario: OpCase, rows: int) -> OpCase:
    """Return an all_to_all of ``rows`` rows from each rank to each other."""
    moved = Tensor("x", DType.BF16, rows * scenario.num_ranks, COLUMNS, Shard.NONE)
    return replace(scenario, shape=OpShape("combine", "", Pattern.ALL_TO_ALL, (moved,), moved, None, "y"))


def _by_all_sms(rows: int, peers: range, sms: int) -> OpPlan:
    """Return puts to one peer after the other, the nearest first; no two ranks send to the same peer at once."""
    puts = tuple(
        Transfer(f"x{peer}", Direction.PUT, _block(peer, rows), peer, signal_of(f"x{peer}"), lane=0) for peer in peers
    )
    return OpPlan("combine", puts, EngineChoice(EngineKind.SM, sms), sms, 0)


def _block(peer: int, rows: int) -> Region:
    return Region(peer, IndexRange(0, rows), IndexRange(0, COLUMNS))
