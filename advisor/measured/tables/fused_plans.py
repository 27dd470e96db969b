"""The schedules of the fused kernels in the tables, written after their source code.

Nothing here is fitted to the measured times.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ....compiler.ir import (
    Direction,
    EngineChoice,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    IndexRange,
    Kernels,
    OpCase,
    OpChoice,
    Pattern,
    Region,
    Step,
    TileGroup,
    Transfer,
    Wait,
    WaitPer,
    WrittenPlan,
)

MakePlan = Callable[[OpCase], OpChoice | WrittenPlan]
PIECES = 4
"""Pieces of a shard with a signal each in flux: it releases tiles of 128 rows, and shards here have 512."""
MULTIMEM_BLOCKS = 8
"""Default number of blocks of PyTorch's multimem_all_gather_out."""
COPY_SMS = 16
"""SMs that send partial sums. Assumed: from 7 to 52 SMs, predicted speedups of flux differ by 8 % at most."""
_PERSISTENT = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL, per=WaitPer.TILE)
_PULLING = ExecutionOptions(Direction.GET, kernel=Kernels.PERSISTENT, wait=Wait.POLL, per=WaitPer.TILE)


@dataclass(frozen=True, slots=True)
class FusedKernel:
    """A fused kernel: its ``name`` in reports, parts of its names in tables (``known_as``), and its schedules."""

    name: str
    known_as: tuple[str, ...]
    plans: Mapping[Pattern, MakePlan]

    def has_schedule(self, pattern: Pattern) -> bool:
        """Whether its schedule for ``pattern`` is known; a lone GEMM is always one of a library."""
        return pattern is Pattern.GEMM or pattern in self.plans


def implementation_named(text: str) -> FusedKernel | None:
    """Return the implementation that a table calls ``text``, None if it is unknown."""
    return next((each for each in IMPLEMENTATIONS if any(known in text for known in each.known_as)), None)


def _pull_shards(scenario: OpCase) -> OpChoice:
    """One copy stream gets whole shards, the next rank's first; tiles of one kernel wait for their shard."""
    return OpChoice("shard_p2p", scenario.num_ranks, EngineChoice(EngineKind.DMA, 1), 1, _PULLING)


def _push_shards(scenario: OpCase) -> OpChoice:
    """One kernel over all tiles; a copy stream sends a peer's block once its tiles are done, to be summed there."""
    return OpChoice("shard_p2p", scenario.num_ranks, EngineChoice(EngineKind.DMA, 1), 1, _PERSISTENT)


def _flux_gather(scenario: OpCase) -> OpChoice:
    engines = min(scenario.gpu.dma.engines, scenario.num_ranks - 1)
    chunks = PIECES * scenario.num_ranks
    return OpChoice("hetero_unfused_1d", chunks, EngineChoice(EngineKind.DMA, engines), 1, _PERSISTENT)


def _flux_scatter(scenario: OpCase) -> OpChoice:
    engine = EngineChoice(EngineKind.SM, COPY_SMS, EngineMode.SHARED)
    return OpChoice("hetero_unfused_1d", PIECES * scenario.num_ranks, engine, 1, _PERSISTENT)


def _sums_to_all(scenario: OpCase) -> OpChoice:
    engine = EngineChoice(EngineKind.SM, COPY_SMS)
    return OpChoice("uniform_fused_1d", PIECES * scenario.num_ranks, engine, 1, _PERSISTENT)


def _multimem(scenario: OpCase) -> OpChoice:
    engine = EngineChoice(EngineKind.SM, MULTIMEM_BLOCKS)
    return OpChoice("serial", scenario.num_ranks, engine, 1, ExecutionOptions(), "nvls")


def _two_streams(scenario: OpCase) -> WrittenPlan:
    """Two streams take shards in turn: a stream gets a shard, computes with it, and continues with its next."""
    shape, ranks = scenario.shape, scenario.num_ranks
    assert shape.moved is not None and shape.gemm is not None, "an AG+GEMM has both"
    rows, inner = IndexRange(0, shape.moved.rows // ranks), IndexRange(0, shape.gemm.k)
    out, moved = IndexRange(0, shape.gemm.n), IndexRange(0, shape.moved.cols)
    steps: list[Step] = [TileGroup("g0", (Region(0, rows, out),), inner)]
    last = {0: ("g0",), 1: ()}
    for peer in range(1, ranks):
        stream, name = peer % 2, f"g{peer}"
        shard, before = Region(peer, rows, moved), last[stream]
        steps.append(Transfer(f"x{peer}", Direction.GET, shard, peer, f"s{peer}", before, lane=stream))
        steps.append(TileGroup(name, (Region(peer, rows, out),), inner, (f"s{peer}",), stream))
        last[stream] = (name,)
    return WrittenPlan(EngineChoice(EngineKind.DMA, 2), tuple(steps), tactics=ExecutionOptions(Direction.GET))


IMPLEMENTATIONS = (
    # bytedance/flux: copy engines bring pieces of shards and set a flag for each, which the tiles of one GEMM kernel
    # wait for; the epilogue of a GEMM writes its tiles to the ranks that own them, which sum them afterwards.
    FusedKernel("flux", ("flux",), {Pattern.AG_GEMM: _flux_gather, Pattern.GEMM_RS: _flux_scatter}),
    # PyTorch, torch/distributed/_symmetric_memory: shard by shard, each copied and consumed on one of two streams.
    FusedKernel("PyTorch async-TP", ("fused_all_gather_matmul", "decomp async-TP"), {Pattern.AG_GEMM: _two_streams}),
    # PyTorch, the same file: one CUTLASS kernel, ordered by rank, and a stream of copies that reports its progress.
    FusedKernel("PyTorch, progress-aware CUTLASS", ("progress-aware",), {Pattern.AG_GEMM: _pull_shards}),
    # PyTorch: the switch copies each shard to all, then the library's GEMM. Nothing overlaps.
    FusedKernel("PyTorch multimem all_gather", ("multimem_all_gather",), {Pattern.AG_GEMM: _multimem}),
    # meta-pytorch/kraken: as progress-aware, with a persistent Triton kernel of tiles 128 x 256.
    FusedKernel("kraken", ("kraken triton",), {Pattern.AG_GEMM: _pull_shards}),
    # ByteDance-Seed/Triton-distributed: copies pull shards on one stream under a persistent Triton kernel; after a GEMM
    # a stream sends each rank's block when its tiles are done. Its all_reduce sums in the switch, which a schedule here
    # cannot do with what a kernel makes: parts go to their owner and sums from there to all.
    FusedKernel(
        "Triton-distributed",
        ("triton-distributed",),
        {Pattern.AG_GEMM: _pull_shards, Pattern.GEMM_RS: _push_shards, Pattern.GEMM_AR: _sums_to_all},
    ),
)
