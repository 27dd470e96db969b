"""Execution plans of MSCCL++ as chunk plans, as far as the language of plans reaches.

Puts and gets become transfers, sums become kernels that sum, and sums that read from peers become gets that add. A
threadblock that copies is an SM; puts through port channels are commands of copy engines. What a plan does not say
takes no time: copies inside a GPU, and waits for peers that have sent nothing.
"""

from collections.abc import Callable

from ...codes import Code
from ...ir import (
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Plan,
    Reach,
    Reduction,
    Scenario,
    Step,
    Transfer,
)
from ...text.json_items import Item
from .buffers import BufferSpace, space_of
from .data import BufferState
from .document import ChannelKind
from .interpret import MscclppRun
from .parse import read_execution
from .values import Event


def read_mscclpp(scenario: Scenario, document: Item) -> Plan:
    """The plan of an execution plan for ``scenario``, a collective alone; what is beyond plans is in the report."""
    execution = read_execution(document)
    space = space_of(scenario, execution, document)
    run = MscclppRun(execution, BufferState(space), document)
    run.run()
    _warn(run, document)
    engine = _engine(scenario, run.board)
    tactics = ExecutionOptions(protocol=CopyProtocol.LL if execution.packets else CopyProtocol.SIMPLE)
    alike = _steps(run.board, lambda event: f"s_{event.name}")
    if all(steps == alike[0] for steps in alike):
        return Plan(engine, alike[0], (), tactics)
    # Signals of all ranks have names of their own, for several may land at one.
    by_rank = _steps(run.board, lambda event: f"s{event.rank}_{event.name}")
    return Plan(engine, by_rank[0], (), tactics, by_rank)


def _warn(run: MscclppRun, document: Item) -> None:
    if run.idle:
        what = " and ".join(f"{count} {name}" for name, count in sorted(run.idle.items()))
        origin = document.origin
        origin.report.warn(Code.MGS527, f"{origin.file}: {what} take no time here", origin.span)


def _engine(scenario: Scenario, board: BufferState) -> EngineChoice:
    """As many SMs as threadblocks copy or sum, or a copy engine for each port channel in use."""
    moves = [event for event in board.events if event.action.direction is not None]
    by_port = [event for event in moves if event.op.kind is ChannelKind.PORT]
    if by_port and len(by_port) < len(moves):
        odd = next(event.op for event in moves if event.op.kind is not ChannelKind.PORT)
        raise odd.beyond("some transfers go by copy engines and others by threads, and a plan has one pool")
    if by_port:
        used = {(event.rank, channel) for event in by_port for channel in event.op.channels}
        most = max(sum(rank == each for each, _ in used) for rank in range(scenario.num_ranks))
        return EngineChoice(EngineKind.DMA, max(1, min(most, scenario.gpu.dma.engines)))
    blocks = {(event.rank, event.block) for event in board.events}
    most = max((sum(rank == each for each, _ in blocks) for rank in range(scenario.num_ranks)), default=1)
    return EngineChoice(EngineKind.SM, max(1, most))


def _steps(board: BufferState, signal: Callable[[Event], str]) -> tuple[tuple[Step, ...], ...]:
    """The steps of each rank, in the order of the run; ``signal`` names what a transfer sets."""
    found: list[list[Step]] = [[] for _ in board.seen]
    before: list[int] = []
    for event in board.events:
        waits, covered = _waits(board, event, before)
        lands = (each.rank != event.rank or each.action.direction is Direction.GET for each in waits)
        after = sorted(signal(each) if landed else each.name for each, landed in zip(waits, lands, strict=True))
        before.append(covered)
        found[event.rank].append(_step(board.space, event, tuple(after), signal(event)))
    return tuple(tuple(steps) for steps in found)


def _waits(board: BufferState, event: Event, before: list[int]) -> tuple[list[Event], int]:
    """What a step waits for at its rank, without what that surely comes after; and the bits of all of it."""
    left, covered, found = event.known & board.seen[event.rank], 0, list[Event]()
    while left:
        number = left.bit_length() - 1
        found.append(board.events[number])
        covered |= before[number] | 1 << number
        left &= ~covered
    return found, covered


def _step(space: BufferSpace, event: Event, after: tuple[str, ...], signal: str) -> Step:
    region, action = space.region(event.op, event.piece, event.count, event.rank), event.action
    if action.direction is None:
        return Reduction(event.name, region, action.num_parts, after)
    everyone = action.peer is None
    peer = 0 if action.peer is None else (action.peer - event.rank) % space.num_ranks
    reach = Reach.ALL if everyone else Reach.PEER
    return Transfer(event.name, action.direction, region, peer, signal, after, reduce=action.reduce, reach=reach)
