"""The number of rows at which the answer flips between overlap and serial, the rest of the scenario staying as it is.

Other numbers of rows get a short advice: the schedules that the scenario has, resized, of which the likely ones and
their variants are simulated. There is no search for bespoke schedules.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...compiler.ir import Cancelled, OpCase, OpChoice, OpShape, Pattern, Scenario, Shard, Tensor, rank_parts
from ...compiler.planning.build import reject_choice
from ..answer.rule import finalists, overlap_pays
from ..bespoke.batches import batches_of, shares, whole_rows, with_batches
from ..bespoke.neighbours import is_explored
from ..candidates.advice import Threshold
from ..candidates.candidate import Candidate
from ..candidates.predicted import predicted_candidates
from ..candidates.shortlist import simulate_shortlist, simulate_variants
from ..work.workers import Workers

# Chunks of each rank that templates are tried with at other rows, and the most of them.
FEW_PIECES, MAX_PIECES = (1, 2, 4), 16
# How the input with the rows of the result lies on the ranks. Behind an all_to_all it is what moves.
_SHARD_OF_ROWS = {Pattern.AG_GEMM: Shard.ROWS, Pattern.GEMM_RS: Shard.COLS, Pattern.GEMM_AR: Shard.COLS}


def num_rows(shape: OpShape) -> int | None:
    """Return the rows of the GEMM, None where ``with_rows`` does not apply.

    It applies to one GEMM with a collective that moves as many rows as the GEMM has, the same between all ranks.
    """
    gemm, moved = shape.gemm, shape.moved
    if gemm is None or moved is None or shape.uneven or shape.pattern not in (*_SHARD_OF_ROWS, Pattern.A2A_GEMM):
        return None
    return gemm.m if gemm.m == (moved.cols if shape.by_columns else moved.rows) else None


def with_rows(scenario: OpCase, rows: int) -> OpCase:
    """Return ``scenario`` with a GEMM of ``rows`` rows, and without declared schedules.

    They are a multiple of the ranks, but for an all_reduce. Tensors of weights stay as they are.
    """
    workload = scenario.shape
    gemm, moved = workload.gemm, workload.moved
    assert gemm is not None and moved is not None, "num_rows says whether this applies"
    names, shard = (moved.name, *workload.made), _SHARD_OF_ROWS.get(workload.pattern)

    def resized(tensor: Tensor) -> Tensor:
        return replace(tensor, rows=rows) if tensor.name in names or tensor.shard is shard else tensor

    workload = replace(workload, tensors=tuple(map(resized, workload.tensors)), gemm=replace(gemm, m=rows))
    if workload.pattern is not Pattern.GEMM_AR:
        return replace(scenario, shape=replace(workload, moved=replace(moved, rows=rows)), schedules=())
    parts = rank_parts(replace(moved, rows=rows, cols=gemm.n), scenario.num_ranks)
    assert parts is not None, "there are as many columns as before, or rows for all ranks"
    workload = replace(workload, moved=parts.moved, by_columns=parts.by_columns, loads=parts.loads)
    return replace(scenario, shape=workload, schedules=())


def with_moved_rows(scenario: OpCase, rows: int) -> OpCase:
    """Return ``scenario``, a collective alone, with a tensor of ``rows`` rows, a multiple of the ranks."""
    workload = scenario.shape
    moved = workload.moved
    assert moved is not None, "a collective moves a tensor"

    def resized(tensor: Tensor) -> Tensor:
        if workload.by_columns:
            return replace(tensor, cols=rows) if tensor.cols == moved.rows else tensor
        return replace(tensor, rows=rows) if tensor.rows == moved.rows else tensor

    tensors = tuple(map(resized, workload.tensors))
    workload = replace(workload, tensors=tensors, moved=replace(moved, rows=rows), loads=())
    return replace(scenario, shape=workload, schedules=())


def resized_choices(scenario: OpCase, resized: OpCase, choice: OpChoice) -> Iterator[OpChoice]:
    """Yield the legal forms of a ``choice`` of ``scenario`` where it is ``resized``.

    A bespoke choice keeps the shares of its parts. A template has few chunks, as many as before, or such of the same
    size.
    """
    if choice.parts:
        forms = [_with_shares(resized, choice)]
    else:
        ranks, before, after = scenario.num_ranks, num_rows(scenario.shape), num_rows(resized.shape)
        assert before is not None and after is not None, "only such scenarios are resized"
        same_size = 1 << max(0, round(math.log2(choice.chunks / ranks * after / before)))
        pieces = {*FEW_PIECES, min(MAX_PIECES, same_size)}
        forms = [choice, *(replace(choice, chunks=ranks * each) for each in sorted(pieces))]
    for form in dict.fromkeys(forms):
        requested = form.chunks == choice.chunks or is_explored(resized.explore, form)
        if requested and reject_choice(resized, form) is None:
            yield form


def _with_shares(resized: OpCase, choice: OpChoice) -> OpChoice:
    """Return a bespoke choice whose parts have the same shares of the rows of each block."""
    batches = batches_of(choice)
    by_block = zip(*(batch.rows for batch in batches), strict=True)
    shared = (shares(rows, list(weights)) for rows, weights in zip(whole_rows(resized), by_block, strict=True))
    rows_of_batches = zip(*shared, strict=True)
    return with_batches(
        choice, [replace(batch, rows=rows) for batch, rows in zip(batches, rows_of_batches, strict=True)]
    )


# Rows that are tried: twice or half as many again and again, then by bisection to this share of the rows.
LEAST_ROWS, MOST_ROWS = 16, 1 << 16
PRECISION = 1 / 16
# Overlapping schedules that are simulated at each number of rows, the most promising.
TOP = 8


def threshold_of(
    scenario: OpCase, candidates: Sequence[Candidate], pays: bool, pool: Workers | None
) -> Threshold | None:
    """Return where overlap begins or ceases to pay; None where rows cannot be changed, or nothing overlaps.

    ``pays`` is whether overlap pays in ``scenario``. Without a ``pool`` nothing is simulated.

    Raises
    ------
    Cancelled
        If the caller asked to stop.
    """
    rows = num_rows(scenario.shape)
    if rows is None or all(candidate.is_serial for candidate in candidates):
        return None
    search = _Search(scenario, rows, _structures(candidates), pool, {rows: pays})
    flip = search.flip()
    simulated = pool is not None
    if flip is None:
        return Threshold(None, pays, simulated, (min(search.verdicts), max(search.verdicts)))
    return Threshold(flip[1], search.verdicts[flip[1]], simulated, flip)


def _structures(candidates: Sequence[Candidate]) -> tuple[OpChoice, ...]:
    """Return the best choice of each structure; structures differ in more than the number of chunks."""
    best: dict[OpChoice, OpChoice] = {}
    for choice in (candidate.choice for candidate in candidates if candidate.choice is not None):
        best.setdefault(replace(choice, chunks=1, parts=(), slices=(), columns=()), choice)
    return tuple(best.values())


def first_flip(
    now: int, fewer: Iterable[int], more: Iterable[int], pays: bool, pays_at: Callable[[int], bool | None]
) -> tuple[int, int] | None:
    """Return neighbours among values outward from ``now`` between which it flips whether overlap pays; None if none do.

    It ``pays`` now; where it does, ``fewer`` are tried first. A value that does not fit has None.
    """
    for outward in (fewer, more) if pays else (more, fewer):
        last = now
        for value in outward:
            found = pays_at(value)
            if found is not None and found is not pays:
                return min(last, value), max(last, value)
            last = last if found is None else value
    return None


@dataclass(slots=True)
class _Search:
    """A search around a scenario of ``rows`` rows; ``verdicts`` are whether overlap pays, by rows."""

    scenario: OpCase
    rows: int
    structures: Sequence[OpChoice]
    pool: Workers | None
    verdicts: dict[int, bool] = field(default_factory=dict)

    def flip(self) -> tuple[int, int] | None:
        """Return rows close to each other with different verdicts, None if all that were tried agree."""
        pays = self.verdicts[self.rows]
        found = first_flip(self.rows, self._fewer(), self._more(), pays, self._pays_at)
        return None if found is None else self._bisected(*found)

    def _fewer(self) -> Iterator[int]:
        rows = self.rows
        while (rows := self._round(rows / 2)) >= max(LEAST_ROWS, self.scenario.num_ranks):
            yield rows

    def _more(self) -> Iterator[int]:
        rows = self.rows
        while (rows := self._round(rows * 2)) <= MOST_ROWS:
            yield rows

    def _round(self, rows: float) -> int:
        """Round down to a multiple of the ranks that is at most the precision."""
        ranks = self.scenario.num_ranks
        grain = ranks << max(0, int(rows * PRECISION / ranks).bit_length() - 1)
        return int(rows) // grain * grain

    def _bisected(self, low: int, high: int) -> tuple[int, int]:
        below = self._pays_at(low)
        while low < (middle := self._round((low + high) / 2)) < high:
            low, high = (middle, high) if self._pays_at(middle) is below else (low, middle)
        return low, high

    def _pays_at(self, rows: int) -> bool:
        if rows not in self.verdicts:
            scenario = with_rows(self.scenario, rows)
            question = Scenario.of_one(scenario)
            self.verdicts[rows] = overlap_pays(question, finalists(question, self._candidates(scenario)))
        return self.verdicts[rows]

    def _candidates(self, resized: OpCase) -> list[Candidate]:
        """Return the candidates with other rows; simulated are the likely ones, if there is a pool."""
        choices = (form for choice in self.structures for form in resized_choices(self.scenario, resized, choice))
        candidates = predicted_candidates(resized, tuple(choices))
        if self.pool is None:
            return candidates
        candidates = simulate_shortlist(self.pool, resized, candidates, TOP, _unreported)
        candidates = simulate_variants(self.pool, resized, candidates, _unreported)
        if self.pool.stopped:
            raise Cancelled
        return candidates


def _unreported(stage: str, done: int, total: int) -> None:
    """Progress of an inner stage, which nobody sees."""
