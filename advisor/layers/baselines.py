"""Schedules that people have today, for any graph: what a joint one is compared with.

No overlap; each pair by what is best for it alone, one after the other; and the tables that are written by hand in
Transformer Engine (Megatron), in Domino, and in the two-batch overlap of SGLang and vLLM.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...compiler.ir import Choice, Graph, GraphChoice, GraphOp, OpMode, Pattern, Seams, System
from ...compiler.resolve.schedules.graph_from_text import SERIAL
from ...compiler.resolve.schedules.shipped_implementations import shipped_implementations
from .copiers import Copier
from .modes import Way, fastest_alone
from .placement import is_free

IN_TURN, TABLE, OP_BY_OP, BY_BLOCKS = "in_turn", "te_table", "two_batches", "half_batches"

NO_OVERLAP = "no overlap"

EACH_ITS_BEST = "each pair's own best, one after the other"

TE = "transformer_engine"
"""The implementation whose table is compared, as the library of implementations names it."""


@dataclass(frozen=True, slots=True)
class Known:
    """A schedule that people have today, and in words what it is."""

    choice: GraphChoice
    what: str


def baselines_of(system: System, graph: Graph, ways: Mapping[str, Sequence[Way]], copier: Copier) -> Iterator[Known]:
    """Yield what a graph can be compared with, without pairs no overlap alone.

    ``ways`` are those of its ops by ``copier``.
    """
    yield Known(SERIAL, NO_OVERLAP)
    if not any(op.is_pair for op in graph.ops):
        return
    best = tuple(fastest_alone(of).mode for of in ways.values() if len(of) > 1)
    lone = tuple(way.mode for of in ways.values() for way in of if len(of) == 1 and way.mode.body is not None)
    in_turn = (*(mode for mode in best if mode.body is not None), *lone)
    yield Known(GraphChoice(IN_TURN, in_turn, seams=Seams.WHOLE), EACH_ITS_BEST)
    if any(each.name == TE and system.gpu.name in each.gpus for each in shipped_implementations(system)):
        yield Known(_table(system, graph, copier), "Transformer Engine's table: pipelined or bulk by op")


def _table(system: System, graph: Graph, copier: Copier) -> GraphChoice:
    """What Transformer Engine does with ``ub_overlap``: rings where a pair overlaps in itself, bulk beside a wgrad.

    A pair whose collective sums, with a kernel behind it that does not need the sum, is bulk: the collective runs
    beside that kernel. A tensor that is gathered again is gathered beside the kernel of the pair before its reader.
    Source: transformer_engine/pytorch/module/base.py, ``initialize_ub``: ``ring_exchange``, ``pipeline`` and ``bulk``.
    """
    modes, beside = list[OpMode](), list[tuple[str, str]]()
    for index, op in enumerate(graph.ops):
        if op.workload.is_collective:
            modes.append(OpMode(op.name, copier.serial(system.num_ranks)))
            before = next((other for other in reversed(graph.ops[:index]) if other.is_pair), None)
            if is_free(op) and before is not None:
                beside.append((op.name, before.name))
        elif op.is_pair and op.workload.pattern.produces and _filler_behind(graph, index) is not None:
            modes.append(OpMode(op.name, apart=copier.engine))
        elif op.workload.pattern in (Pattern.AG_GEMM, Pattern.GEMM_RS):
            modes.append(OpMode(op.name, Choice("pipelined", system.num_ranks, copier.engine, algorithm="ring")))
    return GraphChoice(TABLE, tuple(modes), tuple(op.name for op in graph.ops), (), tuple(beside))


def _filler_behind(graph: Graph, index: int) -> GraphOp | None:
    """The next kernel of the file that does not need what the op at ``index`` leaves."""
    needing = {graph.ops[index].name}
    for op in graph.ops[index + 1 :]:
        if any(read.made_by in needing for read in op.reads):
            needing.add(op.name)
        elif not op.workload.is_collective:
            return op
    return None


def in_batches_of(graph: Graph, ways: Mapping[str, Sequence[Way]], batches: int) -> Iterator[Known]:
    """Yield the orders that people write for ``graph``, written out in batches, with collectives apart."""
    modes = tuple(next((way for way in of if way.is_apart), of[0]).mode for of in ways.values())
    modes = tuple(mode for mode in modes if mode != OpMode(mode.op))
    ops = [op.name for op in graph.ops]
    yield Known(
        GraphChoice(OP_BY_OP, modes, tuple(ops), sums_first=True, batches=batches),
        f"{batches} batches op by op, as two-batch overlap does",
    )
    yield Known(
        GraphChoice(BY_BLOCKS, modes, tuple(_by_blocks(graph)), sums_first=True, batches=batches),
        f"{batches} batches block by block, as Domino does",
    )


def _by_blocks(graph: Graph) -> Iterator[str]:
    """The ops of one batch up to a collective that sums or exchanges, then those of the next batch."""
    blocks: dict[int, list[list[str]]] = {}
    for op in graph.ops:
        own = blocks.setdefault(op.batch, [[]])
        own[-1].append(op.name)
        if op.workload.moved is not None and not op.workload.pattern.consumes:
            own.append([])
    for place in range(max(map(len, blocks.values()))):
        for own in blocks.values():
            yield from own[place] if place < len(own) else ()


def in_one_program(choice: GraphChoice, name: str) -> GraphChoice:
    """The same with seams by rows and sums first, as a start of the search."""
    return replace(choice, name=name, seams=Seams.ROWS, sums_first=True)
