"""Random mutations of a plan for local search. Every mutation keeps all rows, columns and slices covered once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from ...compiler.ir import Choice, EngineChoice, EngineKind, EngineMode
from ...compiler.templates.bespoke import MAX_PARTS
from ...compiler.templates.cuts import MAX_KERNELS
from .batches import Lengths, RowBatch, batches_of, with_batches
from .costs import GRAIN

STREAMS = (1, 2, 3)
# Rows to shift, in grains (one tile or a few), or as shares of a batch.
_SHIFT_GRAINS = (1, 2, 4, 8, 16, 32)
_SHIFT_SHARES = (0.1, 0.25, 0.5, 1.0)
_SPLIT_SHARES = (0.25, 0.5, 0.75)
# Share of mutations that change the cuts of a batch; of these, the share along the inner dimension if both can be cut.
CUT_SHARE, SLICED_SHARE = 0.2, 0.7


@dataclass(slots=True)
class _Draft:
    """A batch that is being mutated."""

    rows: list[int]
    slices: tuple[int, ...]
    columns: tuple[int, ...]

    @property
    def kernels(self) -> int:
        return max(1, len(self.slices)) * max(1, len(self.columns))


_Plan = list[_Draft]


def neighbour(random: Random, choice: Choice, engines: Sequence[EngineChoice], lengths: Lengths) -> Choice:
    """Return a random neighbour of ``choice``, or ``choice`` itself if the mutation drawn is impossible."""
    kind = random.random()
    if kind < 0.03:
        return replace(choice, engine=random.choice(engines), lanes=0)
    if kind < 0.06:
        return replace(choice, streams=random.choice(STREAMS))
    if kind < 0.09:
        return replace(choice, lanes=random.choice(lanes_of(choice.engine, choice.chunks - 1)))
    plan = [_Draft(list(batch.rows), batch.slices, batch.columns) for batch in batches_of(choice)]
    if random.random() < CUT_SHARE:
        _cut(random, random.choice(plan), lengths)
    else:
        change = random.choices((_shift_all, _shift_own, _shift_one, _split, _merge, _swap), (40, 20, 15, 10, 10, 5))[0]
        change(random, plan)
    plan = [draft for draft in plan if any(draft.rows)]
    if len(plan) > MAX_PARTS or sum(draft.kernels for draft in plan) > MAX_KERNELS:
        return choice
    return with_batches(choice, (RowBatch(tuple(draft.rows), draft.slices, draft.columns) for draft in plan))


def lanes_of(engine: EngineChoice, peers: int) -> tuple[int, ...]:
    """Return the numbers of lanes to try: none, and one or two for each peer (all engines if there are fewer)."""
    if engine.kind is EngineKind.SM or engine.mode not in (EngineMode.OWN, EngineMode.PRELAUNCHED):
        return (0,)
    return tuple(dict.fromkeys((0, min(engine.count, peers), min(engine.count, 2 * peers))))


def _cut(random: Random, draft: _Draft, lengths: Lengths) -> None:
    """Change the cuts of a batch: slices of the inner dimension, or bands of columns, which are sent one by one."""
    if not lengths.produces or random.random() < SLICED_SHARE:
        draft.slices = _recut(random, draft.slices or (lengths.inner,), lengths.step)
    else:
        draft.columns = _recut(random, draft.columns or (lengths.cols,), lengths.step)


def _recut(random: Random, sizes: tuple[int, ...], step: int) -> tuple[int, ...]:
    """Return one piece more, one less, or a shifted edge; no sizes if one piece is left."""
    pieces, index = list(sizes), random.randrange(len(sizes))
    kind = random.choices((_divide, _join, _lend), (4, 2, 4))[0]
    kind(random, pieces, index, step)
    return tuple(pieces) if len(pieces) > 1 else ()


def _divide(random: Random, sizes: list[int], index: int, step: int) -> None:
    first = int(sizes[index] * random.choice(_SPLIT_SHARES)) // step * step
    if first:
        sizes[index : index + 1] = [first, sizes[index] - first]


def _join(random: Random, sizes: list[int], index: int, step: int) -> None:
    sizes[index : index + 2] = [sum(sizes[index : index + 2])]


def _lend(random: Random, sizes: list[int], index: int, step: int) -> None:
    """Move a part of one piece to any other."""
    count = min((sizes[index] - 1) // step, random.choice(_SHIFT_GRAINS[:-1])) * step
    to = random.randrange(len(sizes))
    sizes[index] -= count
    sizes[to] += count


def _draw_two(random: Random, plan: _Plan) -> tuple[list[int], list[int]]:
    """Draw two batches, often adjacent ones."""
    source = random.randrange(len(plan))
    near = [index for index in (source - 1, source + 1) if 0 <= index < len(plan)]
    target = random.choice([*near, random.randrange(len(plan))])
    return plan[source].rows, plan[target].rows


def _shift(source: list[int], target: list[int], block: int, rows: int) -> None:
    count = min(source[block], rows)
    source[block] -= count
    target[block] += count


def _shift_all(random: Random, plan: _Plan) -> None:
    """Shift rows of every peer from one batch to another."""
    source, target = _draw_two(random, plan)
    step, share = random.choice(_SHIFT_GRAINS) * GRAIN, random.choice(_SHIFT_SHARES) if random.random() < 0.3 else 0.0
    for block in range(1, len(source)):
        _shift(source, target, block, int(source[block] * share) // GRAIN * GRAIN if share else step)


def _shift_own(random: Random, plan: _Plan) -> None:
    """Shift own rows from one batch to any other, at times all of them."""
    source, target = random.choice(plan).rows, random.choice(plan).rows
    _shift(source, target, 0, random.choice(_SHIFT_GRAINS) * GRAIN if random.random() < 0.7 else source[0])


def _shift_one(random: Random, plan: _Plan) -> None:
    """Shift rows of one peer from one batch to any other."""
    source, target = random.choice(plan).rows, random.choice(plan).rows
    block = random.randrange(1, len(source))
    _shift(source, target, block, random.choice(_SHIFT_GRAINS) * GRAIN if random.random() < 0.7 else source[block])


def _split(random: Random, plan: _Plan) -> None:
    index, share = random.randrange(len(plan)), random.choice(_SPLIT_SHARES)
    whole = plan[index]
    first = [int(count * share) // GRAIN * GRAIN for count in whole.rows]
    rest = [count - taken for count, taken in zip(whole.rows, first, strict=True)]
    plan[index : index + 1] = [replace(whole, rows=first), replace(whole, rows=rest)]


def _merge(random: Random, plan: _Plan) -> None:
    """Merge two batches into one with the cuts of the larger."""
    index = random.randrange(len(plan))
    both = plan[index : index + 2]
    rows = [sum(counts) for counts in zip(*(draft.rows for draft in both), strict=True)]
    plan[index : index + 2] = [replace(max(both, key=lambda draft: sum(draft.rows)), rows=rows)]


def _swap(random: Random, plan: _Plan) -> None:
    index = random.randrange(len(plan))
    plan[index : index + 2] = plan[index : index + 2][::-1]
