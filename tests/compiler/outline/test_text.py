"""read(text(outline)) == outline, and what is as usual is left out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler import format_text
from magus.compiler.ir import CopyProtocol, Direction, ExecutionOptions, PeerOrder
from magus.compiler.outline.outline import By, Grouping, KernelGroup, Ordering, Outline, Split, SplitAxis, Sums, Turn
from tests.helpers.marks import examples
from tests.helpers.plans.outline_text import outline_text
from tests.helpers.scenarios.outlines import DMA3, SM8, outlines, read, scenarios

SCENARIO = scenarios()[0]


@given(outlines(4, whole=False))
@examples(200)
def test_reading_the_text_gives_the_same_outline(outline: Outline) -> None:
    text = outline_text(outline, "s", "up")

    assert read(SCENARIO, text) == outline
    assert format_text(text) == text


@given(st.integers(0, 5), st.integers(0, 5))
def test_a_range_of_pieces_goes_up_or_down(low: int, high: int) -> None:
    text = f"schedule s for up {{ order pieces {low}..{high} }}"

    expected = range(low, high + 1) if low <= high else range(low, high - 1, -1)
    assert read(SCENARIO, text).ordering.pieces == tuple(expected)


def test_what_is_usual_is_left_out() -> None:
    assert outline_text(Outline(DMA3), "s", "w") == "schedule s for w {\n  split shards\n  move by dma(3)\n}\n"


@pytest.mark.parametrize(
    ("outline", "lines"),
    [
        (
            Outline(
                SM8, Split(SplitAxis.ROWS, 3, (128, 384), 1024), ExecutionOptions(protocol=CopyProtocol.LL), "ring"
            ),
            ("split rows 128, 256, 640", "move by sm(8) ring protocol ll"),
        ),
        (
            Outline(
                DMA3, Split(SplitAxis.COLS, 2, (64,)), ExecutionOptions(Direction.GET), one_at_a_time=True, depth=1
            ),
            ("split cols at 64", "move by dma(3) get depth 1 one at a time"),
        ),
        (
            Outline(
                DMA3,
                Split(SplitAxis.ROWS, 4),
                grouping=Grouping(
                    False,
                    By.PIECE,
                    (KernelGroup(0, 1, By.TOGETHER), KernelGroup(2, 2, By.BLOCK), KernelGroup(3, 3, By.PEER)),
                ),
                ordering=Ordering(None, (3, 2, 1, 0), (), PeerOrder.REVERSED, True),
                streams=2,
                sums=Sums.BEHIND,
            ),
            (
                "split rows into 4",
                "move by dma(3)",
                "group own together, pieces 0..1 together, piece 2 by block, piece 3 by peer",
                "order pieces 3, 2, 1, 0, peers reversed, by peer",
                "streams 2",
                "sums behind",
            ),
        ),
        (
            Outline(DMA3, ordering=Ordering(Turn.LAST, (), (2, 1, 3))),
            ("split shards", "move by dma(3)", "order own last, peers 2, 1, 3"),
        ),
    ],
)
def test_the_canonical_text(outline: Outline, lines: tuple[str, ...]) -> None:
    text = outline_text(outline, "s", "w")

    assert text.splitlines() == ["schedule s for w {", *(f"  {line}" for line in lines), "}"]
    assert read(SCENARIO, text) == outline
