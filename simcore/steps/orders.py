"""Orders of pipelines: what each rank of a pipeline computes one after the other.

A path is a model that microbatches run through: one, or two for ``dual``, whose second runs from the last rank to the
first. Its chunks of layers are numbered along it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ...compiler.codes import Code
from ...compiler.ir import Rejection
from ...compiler.ir.step import ChunkPass, PassKind, Pipeline, PipelineKind

Slot = tuple[ChunkPass, ...]
"""What a rank computes at once: one task, or a forward one beside a backward one."""


@dataclass(frozen=True, slots=True)
class Orders:
    """``slots`` of each rank in their order, [ranks][...], and ``chunks`` along each of the ``paths``."""

    slots: tuple[tuple[Slot, ...], ...]
    chunks: int
    paths: int = 1

    @property
    def num_ranks(self) -> int:
        """Ranks of the pipeline."""
        return len(self.slots)


def rank_of(path: int, chunk: int, ranks: int) -> int:
    """The rank that has a chunk of a path."""
    return chunk % ranks if path == 0 else ranks - 1 - chunk % ranks


def chunks_at(pipeline: Pipeline, rank: int, ranks: int) -> tuple[int, ...]:
    """The chunks whose weights a rank has; from both ends it has those of two stages."""
    if pipeline.kind is PipelineKind.DUAL:
        return rank, ranks - 1 - rank
    return tuple(range(rank, ranks * pipeline.chunks, ranks))


def rejected(pipeline: Pipeline, ranks: int, microbatches: int) -> Rejection | None:
    """Why there is no such pipeline, None if there is."""
    where = f"{microbatches} microbatches on {ranks} stages"
    match kind := pipeline.kind:
        case PipelineKind.INTERLEAVED | PipelineKind.DUAL if ranks == 1:
            return Rejection(Code.MGS571, f"{kind.value} is of several stages, and there is one", "one_f_one_b")
        case PipelineKind.INTERLEAVED if microbatches % ranks:
            hint = f"a multiple of {ranks} microbatches, or pipeline one_f_one_b"
            return Rejection(Code.MGS571, f"interleaved takes microbatches in rounds of the stages: {where}", hint)
        case PipelineKind.DUAL if ranks % 2 or microbatches % 2 or microbatches < 2 * ranks:
            hint = f"an even number of stages and of microbatches, at least {2 * ranks} of these"
            return Rejection(Code.MGS571, f"dual feeds microbatches from both ends: {where}", hint)
    return None


def orders_of(pipeline: Pipeline, ranks: int, microbatches: int) -> Orders:
    """Return the orders of a pipeline that is not ``rejected``."""
    chunks = ranks * pipeline.chunks if pipeline.kind is PipelineKind.INTERLEAVED else ranks
    match pipeline.kind:
        case PipelineKind.ZERO_BUBBLE:
            slots = [tuple(_zero_bubble(rank, ranks, microbatches)) for rank in range(ranks)]
        case PipelineKind.DUAL:
            slots = [tuple(_dual(rank, ranks, microbatches)) for rank in range(ranks)]
        case _:
            slots = [tuple(_alternating(rank, ranks, pipeline.chunks, microbatches)) for rank in range(ranks)]
    return Orders(tuple(slots), chunks, 2 if pipeline.kind is PipelineKind.DUAL else 1)


def _alternating(rank: int, ranks: int, chunks: int, microbatches: int) -> Iterator[Slot]:
    """One forward and one backward in turns, after as many forward as others behind need to begin.

    With several chunks microbatches go through each in rounds of ``ranks`` (Megatron-LM,
    ``forward_backward_pipelining_with_interleaving``).
    """
    total = microbatches * chunks
    if chunks == 1:
        first = min(ranks - 1 - rank, total)
    else:
        first = total if microbatches == ranks else min((ranks - 1 - rank) * 2 + (chunks - 1) * ranks, total)

    def forward(number: int) -> Slot:
        turn, place = divmod(number, ranks * chunks)
        return (ChunkPass(PassKind.FORWARD, 0, place // ranks * ranks + rank, turn * ranks + place % ranks),)

    def backward(number: int) -> Slot:
        turn, place = divmod(number, ranks * chunks)
        chunk = (chunks - 1 - place // ranks) * ranks + rank
        return (ChunkPass(PassKind.BACKWARD, 0, chunk, turn * ranks + place % ranks),)

    for number in range(first):
        yield forward(number)
    for number in range(total):
        if first + number < total:
            yield forward(first + number)
        yield backward(number)


def _zero_bubble(rank: int, ranks: int, microbatches: int) -> Iterator[Slot]:
    """As one forward, one backward, with gradients of weights as many microbatches behind as the rank has before it.

    As many microbatches are held as without that (ZB-H1; Qi et al., "Zero Bubble Pipeline Parallelism", section 3).
    """
    first, weights = min(ranks - 1 - rank, microbatches), 0
    for number in range(first):
        yield (ChunkPass(PassKind.FORWARD, 0, rank, number),)
    for number in range(microbatches):
        if first + number < microbatches:
            yield (ChunkPass(PassKind.FORWARD, 0, rank, first + number),)
        yield (ChunkPass(PassKind.INPUTS, 0, rank, number),)
        if number + 1 - weights > rank:
            yield (ChunkPass(PassKind.WEIGHTS, 0, rank, weights),)
            weights += 1
    for number in range(weights, microbatches):
        yield (ChunkPass(PassKind.WEIGHTS, 0, rank, number),)


class _DualOrder:
    """The order of one rank of DualPipe, which has a chunk of each path: the near one, 0 here, enters at its end.

    DeepSeek-V3 Technical Report, figure 5.
    """

    def __init__(self, rank: int, ranks: int) -> None:
        self._rank, self._ranks = rank, ranks
        self._swapped = rank >= ranks // 2
        self._next = {(work, side): 0 for work in PassKind for side in (0, 1)}
        self._waiting: list[ChunkPass] = []
        self.slots: list[Slot] = []

    def _task(self, work: PassKind, side: int) -> ChunkPass:
        path = side ^ self._swapped
        chunk = self._rank if path == 0 else self._ranks - 1 - self._rank
        counted = PassKind.BACKWARD if work is PassKind.INPUTS else work
        number = self._next[counted, side]
        self._next[counted, side] += 1
        return ChunkPass(work, path, chunk, number)

    def forward(self, side: int) -> None:
        """A forward chunk alone."""
        self.slots.append((self._task(PassKind.FORWARD, side),))

    def backward(self, side: int, *, split: bool = False) -> None:
        """A backward chunk alone; ``split`` leaves the gradients of weights for later."""
        task = self._task(PassKind.INPUTS if split else PassKind.BACKWARD, side)
        self.slots.append((task,))
        if split:
            self._waiting.append(task._replace(work=PassKind.WEIGHTS))

    def weights(self) -> None:
        """The gradients of weights that wait longest."""
        self.slots.append((self._waiting.pop(0),))

    def both(self, forward: int, backward: int) -> None:
        """A forward chunk beside a backward one."""
        self.slots.append((self._task(PassKind.FORWARD, forward), self._task(PassKind.BACKWARD, backward)))


def _dual(rank: int, ranks: int, microbatches: int) -> list[Slot]:
    order, place, half = _DualOrder(rank, ranks), min(rank, ranks - 1 - rank), ranks // 2
    behind, is_middle = half - 1 - place, place == half - 1
    for _ in range(2 * behind):
        order.forward(0)
    for _ in range(place + 1):
        order.forward(0)
        order.forward(1)
    for _ in range(behind):
        order.backward(1, split=True)
        order.weights()
        order.forward(1)
    for number in range(microbatches // 2 - ranks + place + 1):
        if number == 0 and is_middle:  # neither has what the other would wait for
            order.forward(0)
            order.backward(1)
        else:
            order.both(0, 1)
        order.both(1, 0)
    for _ in range(behind):
        order.backward(1)
        order.both(1, 0)
    splits = False
    for number in range(place + 1):
        splits |= number == (place + 1) // 2 and place % 2 == 1
        order.backward(1, split=splits)
        splits |= number == (place + 1) // 2 and place % 2 == 0
        order.backward(0, split=splits)
    for _ in range(behind):
        order.weights()
        order.backward(0, split=True)
    while order._waiting:
        order.weights()
    return order.slots
