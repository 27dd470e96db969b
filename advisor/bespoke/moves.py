"""Small changes of a plan, from which a local search is made. Every change keeps all rows."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from ...compiler.schedule import Choice, EngineChoice, EngineKind, EngineMode
from ...compiler.templates.bespoke import MAX_PARTS, shortened, spelled
from .costs import GRAIN

STREAMS = (1, 2, 3)
# Rows that are shifted at a time, in grains: a tile or some.
_STEPS = (1, 2, 4, 8, 16, 32)
_SHARES = (0.1, 0.25, 0.5, 1.0)
_Rows = list[list[int]]


def neighbour(random: Random, choice: Choice, engines: Sequence[EngineChoice]) -> Choice:
    """A plan that differs a little from ``choice``, or ``choice`` itself where the change drawn cannot be made."""
    kind = random.random()
    if kind < 0.03:
        return replace(choice, engine=random.choice(engines), lanes=0)
    if kind < 0.06:
        return replace(choice, streams=random.choice(STREAMS))
    if kind < 0.09:
        return replace(choice, lanes=random.choice(lanes_of(choice.engine, choice.chunks - 1)))
    rows = [list(part) for part in spelled(choice.parts, choice.chunks)]
    change = random.choices((_shift_all, _shift_own, _shift_one, _split, _merge, _swap), (40, 20, 15, 10, 10, 5))[0]
    change(random, rows)
    parts = tuple(tuple(part) for part in rows if any(part))
    return replace(choice, parts=shortened(parts)) if len(parts) <= MAX_PARTS else choice


def lanes_of(engine: EngineChoice, peers: int) -> tuple[int, ...]:
    """Numbers of lanes worth a look: none, and one or two for each peer (all engines where there are fewer)."""
    if engine.kind is EngineKind.SM or engine.mode is not EngineMode.OWN:
        return (0,)
    return tuple(dict.fromkeys((0, min(engine.count, peers), min(engine.count, 2 * peers))))


def _two(random: Random, rows: _Rows) -> tuple[list[int], list[int]]:
    """Two batches, often side by side."""
    source = random.randrange(len(rows))
    near = [index for index in (source - 1, source + 1) if 0 <= index < len(rows)]
    target = random.choice([*near, random.randrange(len(rows))])
    return rows[source], rows[target]


def _shift(source: list[int], target: list[int], block: int, rows: int) -> None:
    count = min(source[block], rows)
    source[block] -= count
    target[block] += count


def _shift_all(random: Random, rows: _Rows) -> None:
    """Rows of every peer from one batch to another."""
    source, target = _two(random, rows)
    step, share = random.choice(_STEPS) * GRAIN, random.choice(_SHARES) if random.random() < 0.3 else 0.0
    for block in range(1, len(source)):
        _shift(source, target, block, int(source[block] * share) // GRAIN * GRAIN if share else step)


def _shift_own(random: Random, rows: _Rows) -> None:
    """Own rows from one batch to any other, at times all of them."""
    source, target = random.choice(rows), random.choice(rows)
    _shift(source, target, 0, random.choice(_STEPS) * GRAIN if random.random() < 0.7 else source[0])


def _shift_one(random: Random, rows: _Rows) -> None:
    """Rows of one peer from one batch to any other."""
    source, target = random.choice(rows), random.choice(rows)
    block = random.randrange(1, len(source))
    _shift(source, target, block, random.choice(_STEPS) * GRAIN if random.random() < 0.7 else source[block])


def _split(random: Random, rows: _Rows) -> None:
    index, share = random.randrange(len(rows)), random.choice((0.25, 0.5, 0.75))
    first = [int(count * share) // GRAIN * GRAIN for count in rows[index]]
    rows[index : index + 1] = [first, [count - taken for count, taken in zip(rows[index], first, strict=True)]]


def _merge(random: Random, rows: _Rows) -> None:
    index = random.randrange(len(rows))
    both = rows[index : index + 2]
    rows[index : index + 2] = [[sum(counts) for counts in zip(*both, strict=True)]]


def _swap(random: Random, rows: _Rows) -> None:
    index = random.randrange(len(rows))
    rows[index : index + 2] = rows[index : index + 2][::-1]
