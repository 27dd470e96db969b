"""Other forms of a schedule, and kernels that no space has: how they are carried out, and the tiles of their GEMM."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from ...compiler.collectives import nvls
from ...compiler.ir import (
    CopyProtocol,
    Direction,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    Kernels,
    LaunchMode,
    OpCase,
    OpChoice,
    Pattern,
    PeerOrder,
    Wait,
    WaitPer,
)
from ...compiler.planning.build import reject_choice
from ...compiler.planning.knobs.engine import default_engine, tiles_engine
from ...compiler.templates import hetero, pipelined, uniform

# Pieces of each rank's rows that the switch sums at a time, none with fewer rows; and knobs that leave this open.
PIECES_IN_SWITCH, LEAST_ROWS = (1, 8, 16, 32), 32
_OF_TILES = ("schedules", "chunks", "engine", "algorithm", "kernel", "wait", "per", "tile")
# Pieces of each shard of a kernel that is told its tile, and the least side of these.
PIECES_IN_TILES, LEAST_SIDE = (1, 2, 4), 64
PER_TILE = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL, per=WaitPer.TILE)


def summed_in_switch(scenario: OpCase) -> Iterator[OpChoice]:
    """Yield the schedules in which the switch sums what tiles have computed, where the file leaves that open.

    Then partial sums cross each link once, in place of nearly twice. Estimates of these are up to a quarter too long,
    so that all are simulated: the best number of pieces depends on what computes longer than it sends.
    """
    named = any(scenario.explore.values(word) for word in _OF_TILES)
    if named or scenario.shape.pattern is not Pattern.GEMM_AR or scenario.shape.moved is None:
        return
    rows = scenario.shape.moved.rows // scenario.num_ranks
    for pieces in (each for each in PIECES_IN_SWITCH if rows >= each * LEAST_ROWS or each == 1):
        form = OpChoice(
            pipelined.TEMPLATE.name,
            pieces * scenario.num_ranks,
            tiles_engine(scenario.gpu),
            algorithm=nvls.ALGORITHM.name,
            tactics=PER_TILE,
        )
        if reject_choice(scenario, form) is None:
            yield form


def told_tiles(scenario: OpCase) -> Iterator[OpChoice]:
    """Yield kernels that are told their tile and look at each, where the file leaves open how work is cut and moved.

    The tile that is fastest alone is large. With smaller ones the first results leave, or the first data serve, sooner.
    """
    gemm, named = scenario.shape.gemm, any(values for _, values in scenario.explore.requested)
    if named or gemm is None or scenario.shape.loads or not scenario.network.symmetric:
        return
    blocks = dict.fromkeys(block for block, _ in scenario.gpu.tiles_of(gemm.dtype) if min(block) >= LEAST_SIDE)
    own = () if scenario.shape.pattern.consumes else (tiles_engine(scenario.gpu),)  # no kernel that pulls was measured
    engines = (*own, default_engine(scenario.system))
    templates = (hetero.UNFUSED.name, uniform.ROWS.name)
    for engine, template, pieces, tile in product(engines, templates, PIECES_IN_TILES, blocks):
        form = OpChoice(template, pieces * scenario.num_ranks, engine, tactics=replace(PER_TILE, tile=tile))
        if reject_choice(scenario, form) is None:
            yield form


def may_deadlock(choice: OpChoice) -> bool:
    """Whether a persistent kernel may hold the SMs that the copies it waits for need.

    Only a simulation shows whether it does, so that such plans are not searched.
    """
    return choice.engine.mode is EngineMode.SHARED and choice.tactics.kernel is Kernels.PERSISTENT


def forms_of(scenario: OpCase, base: OpChoice | None) -> Iterator[OpChoice]:
    """Yield ``base`` with all execution options that it may have, and in other orders of unequal peers.

    Of a knob that the ``explore`` block names, only the named values are tried. Graphs and monitors are not, unless it
    names them.
    """
    if base is None:
        return
    requested = scenario.explore.values
    directions = requested("transfer") or tuple(Direction)
    if base.engine.kind is not EngineKind.SM and scenario.explore.dominance:
        directions = (base.tactics.direction,)  # a get by a copy engine gains nothing
    protocols = requested("protocol") or tuple(CopyProtocol)
    kernels, waits = requested("kernel") or tuple(Kernels), requested("wait") or (Wait.EVENT, Wait.POLL)
    orders = requested("order") or (base.order, PeerOrder.LARGE_FIRST, PeerOrder.SMALL_FIRST)
    for direction, protocol, kernel, wait, launch, order in product(
        directions, protocols, kernels, waits, launches_of(scenario, base), orders
    ):
        tactics = replace(base.tactics, direction=direction, protocol=protocol, kernel=kernel, wait=wait, launch=launch)
        sums = 1 if kernel is Kernels.PERSISTENT else base.sums
        form = replace(base, tactics=tactics, sums=sums, order=order)
        if form != base and not may_deadlock(form) and reject_choice(scenario, form) is None:
            yield form


def launches_of(scenario: OpCase, base: OpChoice) -> Sequence[LaunchMode]:
    """Return how ``base`` may be launched; as a graph only if the file asks for it and the profile has its cost."""
    has_graphs = scenario.gpu.sync.graph_launch_ticks is not None
    requested = scenario.explore.values("launch")
    return [mode for mode in requested if has_graphs or mode is not LaunchMode.GRAPH] or [base.tactics.launch]


def in_other_tiles(scenario: OpCase, base: OpChoice | None) -> Iterator[OpChoice]:
    """Yield ``base`` as a persistent kernel with each other tile that it may have.

    The one that is fastest alone is large: tiles half its size begin sooner and end earlier what others wait for.
    """
    gemm, requested = scenario.shape.gemm, scenario.explore.values
    waits = [each for each in requested("wait") or Wait if each is not Wait.EVENT]
    if base is None or gemm is None or not waits or Kernels.PERSISTENT not in (requested("kernel") or Kernels):
        return
    tactics = base.tactics
    if tactics.kernel is not Kernels.PERSISTENT:
        tactics = replace(tactics, kernel=Kernels.PERSISTENT, wait=waits[0])
    for tile in requested("tile") or dict.fromkeys(block for block, _ in scenario.gpu.tiles_of(gemm.dtype)):
        form = replace(base, sums=1, tactics=replace(tactics, tile=tile))
        if form != base and not may_deadlock(form) and reject_choice(scenario, form) is None:
            yield form
