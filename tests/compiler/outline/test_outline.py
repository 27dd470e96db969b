"""Pieces of an outline: which rows or columns they are, in what order they move, and how they are grouped."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.ir import IndexRange
from magus.compiler.outline.outline import By, Grouping, KernelGroup, Ordering, Outline, Split, SplitAxis
from tests.helpers.scenarios.outlines import DMA3


@pytest.mark.parametrize(
    ("split", "size", "spans"),
    [
        (Split(), 12, [IndexRange(0, 12)]),
        (Split(SplitAxis.ROWS, 3), 12, [IndexRange(0, 4), IndexRange(4, 8), IndexRange(8, 12)]),
        (Split(SplitAxis.ROWS, 3, (1, 5)), 12, [IndexRange(0, 1), IndexRange(1, 5), IndexRange(5, 12)]),
        (Split(SplitAxis.COLS, 2, (64,), 192), 192, [IndexRange(0, 64), IndexRange(64, 192)]),
    ],
)
def test_what_a_piece_is(split: Split, size: int, spans: list[IndexRange]) -> None:
    assert [split.span(piece, size) for piece in range(split.parts)] == spans


@given(st.integers(1, 40), st.integers(1, 1000))
def test_equal_pieces_of_any_size_are_all_of_it(parts: int, size: int) -> None:
    spans = [Split(SplitAxis.ROWS, parts).span(piece, size) for piece in range(parts)]

    assert spans[0].start == 0 and spans[-1].stop == size
    assert all(one.stop == other.start for one, other in pairwise(spans))
    assert max(span.size for span in spans) - min(span.size for span in spans) <= 1


def test_sizes_are_those_that_are_listed() -> None:
    assert Split(SplitAxis.ROWS, 3, (1, 5), 12).sizes == (1, 4, 7)
    assert Split(SplitAxis.ROWS, 3, (1, 5)).sizes == ()
    assert Split(SplitAxis.ROWS, 1, (), 12).sizes == (12,)


def test_what_is_not_said_is_every_piece_once_and_as_numbered() -> None:
    outline = Outline(DMA3, Split(SplitAxis.ROWS, 3))

    assert outline.piece_order == (0, 1, 2)
    assert outline.batches == (KernelGroup(0, 2, By.PIECE),)


def test_what_is_said_of_pieces() -> None:
    batches = (KernelGroup(0, 0, By.TOGETHER), KernelGroup(1, 2, By.BLOCK))
    outline = Outline(
        DMA3, Split(SplitAxis.ROWS, 3), grouping=Grouping(batches=batches), ordering=Ordering(pieces=(2, 0, 1))
    )

    assert outline.piece_order == (2, 0, 1) and outline.batches == batches


def test_own_rows_that_go_with_pieces() -> None:
    outline = Outline(DMA3, Split(SplitAxis.ROWS, 3), own=(5, 0, 7))

    assert [outline.own_span(first, last) for first, last in ((0, 0), (1, 1), (1, 2))] == [
        IndexRange(0, 5),
        IndexRange(5, 5),
        IndexRange(5, 12),
    ]
