"""What the statements of an outline say, and that whatever is said in its words is read or told."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler import Compiled, CompileError, compile_text
from magus.compiler.collectives import ALGORITHM_BY_NAME
from magus.compiler.ir import (
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    Kernels,
    LaunchMode,
    PeerOrder,
    Wait,
    WaitPer,
    WrittenPlan,
)
from magus.compiler.outline.outline import (
    WORDS,
    By,
    Grouping,
    KernelGroup,
    Ordering,
    Outline,
    Split,
    SplitAxis,
    Sums,
    Turn,
)
from tests.helpers.marks import examples
from tests.helpers.scenarios.outlines import DMA3, read, scenarios

HEAD = """use "amd/mi300x"
system quad { gpus 4 x MI300X; fabric full_mesh(xgmi) }
workload up on quad {
  x = tensor bf16[M, 256] shard rows
  w = tensor bf16[256, 512] shard cols
  xg = all_gather(x)
  y = gemm(xg, w)
}
"""
PERSISTENT = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)


def compiled(body: str, rows: str = "1024", settings: tuple[tuple[str, str], ...] = ()) -> Compiled:
    return compile_text(f"param M = {rows}\n{HEAD}schedule mine for up {{ {body} }}\n", settings=settings)


@pytest.mark.parametrize(
    ("text", "outline"),
    [
        ("split shards", Outline(DMA3)),
        ("split rows into 2 * 2", Outline(DMA3, Split(SplitAxis.ROWS, 4))),
        ("split cols at 64, 192", Outline(DMA3, Split(SplitAxis.COLS, 3, (64, 192)))),
        ("split rows 1, 2, 3", Outline(DMA3, Split(SplitAxis.ROWS, 3, (1, 3), 6))),
        ("split rows 96", Outline(DMA3, Split(SplitAxis.ROWS, 1, (), 96))),
        (
            "split rows 1, 95; split own rows 0, 96; group own together",
            Outline(DMA3, Split(SplitAxis.ROWS, 2, (1,), 96), own=(0, 96), grouping=Grouping(False)),
        ),
        ("move by dma", Outline(DMA3)),
        ("move put direct", Outline(DMA3)),
        (
            "move one at a time ring protocol ll by sm(8, shared)",
            Outline(
                EngineChoice(EngineKind.SM, 8, EngineMode.SHARED),
                tactics=ExecutionOptions(protocol=CopyProtocol.LL),
                algorithm="ring",
                one_at_a_time=True,
            ),
        ),
        ("move lanes 3", Outline(DMA3, lanes=3)),
        ("move get depth 2", Outline(DMA3, tactics=ExecutionOptions(Direction.GET), depth=2)),
        ("group together", Outline(DMA3, grouping=Grouping(True, By.TOGETHER))),
        ("group by peer, own together", Outline(DMA3, grouping=Grouping(False, By.PEER))),
        (
            "group pieces 0..1, piece 2 by block",
            Outline(
                DMA3, grouping=Grouping(True, By.PIECE, (KernelGroup(0, 1, By.TOGETHER), KernelGroup(2, 2, By.BLOCK)))
            ),
        ),
        ("order own last, by peer", Outline(DMA3, ordering=Ordering(Turn.LAST, peers_outermost=True))),
        (
            "order pieces 3, 0..2, peers reversed",
            Outline(DMA3, ordering=Ordering(None, (3, 0, 1, 2), (), PeerOrder.REVERSED)),
        ),
        ("order peers -1, 1..2, by piece", Outline(DMA3, ordering=Ordering(peers=(3, 1, 2)))),
        ("order peers 1, 2, 3", Outline(DMA3)),
        ("streams 3; sums behind", Outline(DMA3, streams=3, sums=Sums.BEHIND)),
        ("sync event; kernel launched; launch stream", Outline(DMA3)),
        ("kernel persistent", Outline(DMA3, tactics=PERSISTENT)),
        (
            "kernel persistent; sync monitor per tile",
            Outline(DMA3, tactics=ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.MONITOR, per=WaitPer.TILE)),
        ),
        ("kernel persistent; tile [64, 256]", Outline(DMA3, tactics=replace(PERSISTENT, tile=(64, 256)))),
        ("kernel persistent; split_k 4", Outline(DMA3, tactics=replace(PERSISTENT, split_k=4))),
        ("launch graph", Outline(DMA3, tactics=ExecutionOptions(launch=LaunchMode.GRAPH))),
    ],
)
def test_what_is_said(text: str, outline: Outline) -> None:
    assert read(scenarios()[0], f"schedule s for up {{ {text} }}") == outline


def test_an_outline_is_a_plan_with_the_name_of_its_schedule() -> None:
    (named,) = compiled("split rows into 4; move by dma(2)").scenario().case.schedules

    assert named.name == "mine" and isinstance(named.body, WrittenPlan)
    assert named.body.engine == EngineChoice(EngineKind.DMA, 2) and len(named.body.steps) == 1 + 4 * (3 + 1)


def test_sizes_are_those_of_parameters() -> None:
    (named,) = compiled("split rows into M / 128").scenario().case.schedules

    assert isinstance(named.body, WrittenPlan) and len(named.body.steps) == 1 + 8 * (3 + 1)


def test_an_outline_that_does_not_fit_sizes_set_from_outside_is_left_out() -> None:
    found = compiled("split rows 100, 156", settings=(("M", "2048"),))

    assert found.scenario().case.schedules == ()
    (warning,) = found.warnings
    assert warning.code.name == "MGS512"
    assert warning.message == "mine is left out: the pieces have 256 rows of a shard, and there are 512"


def test_a_plan_written_out_may_have_steps_with_such_names() -> None:
    body = """plan by dma(3)
order = put xg.shard(0) to 1 signal s3; move = put xg.shard(0) to 2 signal s2; split = put xg.shard(0) to 3 signal s1
group = compute y.shard(0); sync = compute y.shard(1), y.shard(2), y.shard(3) after s1, s2, s3"""
    (named,) = compiled(body).scenario().case.schedules

    assert isinstance(named.body, WrittenPlan) and [step.name for step in named.body.steps][:2] == ["order", "move"]


VOCABULARY = [
    *WORDS,
    *("rows", "cols", "shards", "into", "at", "own", "alone", "together", "by", "piece", "pieces", "peer", "peers"),
    *("block", "first", "last", "rotated", "absolute", "put", "get", "depth", "protocol", "ll", "one", "a", "time"),
    *("dma", "dma(3)", "sm(8)", "sm(8, shared)", "persistent", "poll", "event", "per", "tile", "graph", "apart"),
    *(
        "0",
        "1",
        "2",
        "4",
        "64",
        "192",
        "256",
        "0..1",
        "3..0",
        "-1",
        ",",
        ",",
        ",",
        ";",
        ";",
        "x",
        "plan",
        "=",
        "{",
        "}",
    ),
    *ALGORITHM_BY_NAME,
]


@given(st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=12).map(" ".join))
@examples(120)
def test_whatever_is_said_is_read_or_reported(body: str) -> None:
    try:
        compiled(body)
    except CompileError as error:
        assert all(found.message for found in error.diagnostics)


@given(
    st.sampled_from(WORDS), st.lists(st.sampled_from(VOCABULARY[: -len(ALGORITHM_BY_NAME)]), max_size=6).map(" ".join)
)
@examples(80, deep=2000)
def test_a_statement_is_read_or_reported(word: str, rest: str) -> None:
    try:
        compiled(f"split rows into 4; {word if word != 'split' else 'split own'} {rest}")
    except CompileError as error:
        assert all(found.message for found in error.diagnostics)
