"""The same scenario with another number of rows, and a choice with as many parts, or with parts of the same size."""

import math
from collections.abc import Iterator
from dataclasses import replace

from ...compiler.ir import Choice, Pattern, Scenario, Shard, Tensor, Workload, rank_parts
from ...compiler.planning.build import reject_choice
from ..bespoke.batches import batches_of, with_batches
from ..bespoke.costs import shares, whole_rows
from ..bespoke.explore_limits import is_explored

# Chunks of each rank that templates are tried with at other rows, and the most of them.
FEW_PIECES, MAX_PIECES = (1, 2, 4), 16
# How the input with the rows of the result lies on the ranks. Behind an all_to_all it is what moves.
_SHARD_OF_ROWS = {Pattern.AG_GEMM: Shard.ROWS, Pattern.GEMM_RS: Shard.COLS, Pattern.GEMM_AR: Shard.COLS}


def num_rows(workload: Workload) -> int | None:
    """Return the rows of the GEMM, None where ``with_rows`` does not apply.

    It applies to one GEMM with a collective that moves as many rows as the GEMM has, the same between all ranks.
    """
    gemm, moved = workload.gemm, workload.moved
    if gemm is None or moved is None or workload.uneven or workload.pattern not in (*_SHARD_OF_ROWS, Pattern.A2A_GEMM):
        return None
    return gemm.m if gemm.m == (moved.cols if workload.by_columns else moved.rows) else None


def with_rows(scenario: Scenario, rows: int) -> Scenario:
    """Return ``scenario`` with a GEMM of ``rows`` rows, and without declared schedules.

    They are a multiple of the ranks, but for an all_reduce. Tensors of weights stay as they are.
    """
    workload = scenario.workload
    gemm, moved = workload.gemm, workload.moved
    assert gemm is not None and moved is not None, "num_rows says whether this applies"
    names, shard = (moved.name, *workload.made), _SHARD_OF_ROWS.get(workload.pattern)

    def resized(tensor: Tensor) -> Tensor:
        return replace(tensor, rows=rows) if tensor.name in names or tensor.shard is shard else tensor

    workload = replace(workload, tensors=tuple(map(resized, workload.tensors)), gemm=replace(gemm, m=rows))
    if workload.pattern is not Pattern.GEMM_AR:
        return replace(scenario, workload=replace(workload, moved=replace(moved, rows=rows)), schedules=())
    parts = rank_parts(replace(moved, rows=rows, cols=gemm.n), scenario.num_ranks)
    assert parts is not None, "there are as many columns as before, or rows for all ranks"
    workload = replace(workload, moved=parts.moved, by_columns=parts.by_columns, loads=parts.loads)
    return replace(scenario, workload=workload, schedules=())


def with_moved_rows(scenario: Scenario, rows: int) -> Scenario:
    """Return ``scenario``, a collective alone, with a tensor of ``rows`` rows, a multiple of the ranks."""
    workload = scenario.workload
    moved = workload.moved
    assert moved is not None, "a collective moves a tensor"

    def resized(tensor: Tensor) -> Tensor:
        if workload.by_columns:
            return replace(tensor, cols=rows) if tensor.cols == moved.rows else tensor
        return replace(tensor, rows=rows) if tensor.rows == moved.rows else tensor

    tensors = tuple(map(resized, workload.tensors))
    workload = replace(workload, tensors=tensors, moved=replace(moved, rows=rows), loads=())
    return replace(scenario, workload=workload, schedules=())


def resized_choices(scenario: Scenario, resized: Scenario, choice: Choice) -> Iterator[Choice]:
    """Yield the legal forms of a ``choice`` of ``scenario`` where it is ``resized``.

    A bespoke choice keeps the shares of its parts. A template has few chunks, as many as before, or such of the same
    size.
    """
    if choice.parts:
        forms = [_with_shares(resized, choice)]
    else:
        ranks, before, after = scenario.num_ranks, num_rows(scenario.workload), num_rows(resized.workload)
        assert before is not None and after is not None, "only such scenarios are resized"
        same_size = 1 << max(0, round(math.log2(choice.chunks / ranks * after / before)))
        pieces = {*FEW_PIECES, min(MAX_PIECES, same_size)}
        forms = [choice, *(replace(choice, chunks=ranks * each) for each in sorted(pieces))]
    for form in dict.fromkeys(forms):
        asked = form.chunks == choice.chunks or is_explored(resized.explore, form)
        if asked and reject_choice(resized, form) is None:
            yield form


def _with_shares(resized: Scenario, choice: Choice) -> Choice:
    """Return a bespoke choice whose parts have the same shares of the rows of each block."""
    batches = batches_of(choice)
    by_block = zip(*(batch.rows for batch in batches), strict=True)
    shared = (shares(rows, list(weights)) for rows, weights in zip(whole_rows(resized), by_block, strict=True))
    rows_of_batches = zip(*shared, strict=True)
    return with_batches(
        choice, [replace(batch, rows=rows) for batch, rows in zip(batches, rows_of_batches, strict=True)]
    )
