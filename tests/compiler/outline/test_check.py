"""What an outline says that does not fit is told of the statement that says it; tests/errors has it in files."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from magus.compiler import CompileError, compile_text
from magus.compiler.ir import OpCase, Pattern
from magus.compiler.outline.outline import Outline, Split, SplitAxis
from magus.compiler.outline.write import rejections_on
from tests.helpers.scenarios.outlines import COLS, DMA3, ROWS, read, scenarios
from tests.helpers.scenarios.scenarios import ag_gemm, gemm_rs, lone_gather, lone_gemm

WITH: Mapping[str, OpCase] = {
    "gather": ag_gemm(4 * ROWS, 512, COLS, ranks=4),
    "scatter": gemm_rs(4 * ROWS, COLS, 512, ranks=4),
    "lone": lone_gather(4 * ROWS, COLS, ranks=4),
    "uneven": next(scenario for scenario in scenarios() if scenario.shape.split),
    "one": lone_gemm(64, 64, 64),
}


def reported(scenario: OpCase, text: str) -> list[tuple[str, str, str]]:
    found = rejections_on(scenario, read(scenario, f"schedule s for w {{ {text} }}"))
    return [(rejection.code.name, rejection.statement, rejection.hint) for rejection in found]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("gather", "split rows into 4; group own together, by block; order pieces 3..0, peers reversed", []),
        ("gather", "split rows into 5", [("MGS512", "split", "unequal ones would do: split rows at 19, 38, 57, 76")]),
        ("gather", "split rows into 10", [("MGS512", "split", "unequal ones would do: split rows at 9, 19, ...")]),
        ("gather", "split rows into 97", [("MGS512", "split", "split rows into 96 or fewer")]),
        ("gather", "split cols into 3", [("MGS512", "split", "unequal ones would do: split cols at 64, 128")]),
        ("gather", "split cols into 8", [("MGS512", "split", "split cols into 4 or fewer")]),
        ("gather", "split cols at 64, 100", [("MGS512", "split", "columns are cut at multiples of 64")]),
        ("gather", "split rows 64, 64", [("MGS512", "split", "64, 32 would do")]),
        ("gather", "split rows 96, 64", [("MGS512", "split", "sizes add up to all")]),
        ("gather", "split rows 64", [("MGS512", "split", "96 would do")]),
        ("gather", "split rows at 96", [("MGS512", "split", "below 96")]),
        ("uneven", "split rows into 4", []),
        ("uneven", "split rows into 97", [("MGS512", "split", "split rows into 96 or fewer")]),
        ("uneven", "split cols 64, 192", []),
        ("gather", "split own rows 96", [("MGS513", "split own", "split rows too, and group own together")]),
        (
            "gather",
            "split rows into 2; split own rows 96; group own together",
            [("MGS512", "split own", "one number for each piece, 0 for none")],
        ),
        (
            "gather",
            "split rows into 2; split own rows 48, 47; group own together",
            [("MGS512", "split own", "together they are all rows")],
        ),
        ("lone", "split rows into 2; split own rows 48, 48", [("MGS511", "split own", "leave it out")]),
        ("one", "split rows into 2", [("MGS511", "", "serial schedules this")]),
        ("scatter", "move depth 1", [("MGS513", "move", "leave depth out")]),
        ("gather", "move ring one at a time", [("MGS513", "move", "move direct, or leave the order to the engines")]),
        (
            "gather",
            "split rows into 2; move get depth 1 one at a time; order by peer",
            [("MGS513", "move", "order by piece, or leave depth out")],
        ),
        ("gather", "move lanes 3", []),
        ("gather", "move lanes 4", [("MGS401", "move", "lanes 3, a lane is an engine")]),
        ("gather", "move lanes 2 one at a time", [("MGS513", "move", "lanes 2, or one at a time")]),
        ("gather", "move by sm(8, shared) protocol ll128", [("MGS408", "move", "it carries: simple, ll")]),
        ("gather", "kernel persistent; sync event", [("MGS513", "kernel", "say sync poll or sync monitor")]),
        (
            "gather",
            "kernel persistent; streams 2; split cols into 4",
            [("MGS511", "streams", "streams 1, or kernel launched")],
        ),
        ("gather", "kernel persistent; streams 2; split cols into 4; group together", []),
        (
            "gather",
            "kernel persistent; streams 2; move get depth 1; split rows into 2",
            [("MGS513", "move", "streams 1")],
        ),
        ("gather", "sync per tile", [("MGS513", "sync", "say kernel persistent")]),
        ("lone", "order own first", [("MGS513", "order", "group own alone, or leave own out of the order")]),
        ("gather", "order peers small_first", [("MGS513", "order", "it is for an all_to_all with rows=[...]")]),
        ("uneven", "order peers small_first", []),
    ],
)
def test_what_does_not_fit(name: str, text: str, expected: list[tuple[str, str, str]]) -> None:
    assert reported(WITH[name], text) == expected


def test_all_that_is_wrong_is_reported_once_the_split_is_right() -> None:
    text = "split rows into {}; move ring get; group piece 0, pieces 2..3; order pieces 0, 0, 1, 2; sums behind"

    assert [code for code, _, _ in reported(WITH["gather"], text.format(7))] == ["MGS512"]
    assert reported(WITH["gather"], text.format(4)) == [
        ("MGS511", "move", "direct would do"),
        ("MGS511", "sums", "leave sums out"),
        ("MGS507", "group", "name every piece once"),
        ("MGS501", "order", "name every piece once"),
        ("MGS501", "order", "name every piece once"),
    ]


def test_a_plan_too_long_to_be_written_out() -> None:
    scenario = ag_gemm(512 * 4096, 256, 256, ranks=512)

    (found,) = rejections_on(scenario, Outline(DMA3, Split(SplitAxis.ROWS, 4096), algorithm="halving_doubling"))

    assert (found.code.name, found.statement) == ("MGS406", "split")
    assert not list(rejections_on(scenario, Outline(DMA3, Split(SplitAxis.ROWS, 1024))))


def test_columns_of_a_kernel_that_is_no_inner_dimension() -> None:
    scenario = WITH["gather"]
    gemm = scenario.shape.gemm
    assert gemm is not None
    other = replace(scenario, shape=replace(scenario.shape, gemm=replace(gemm, k=512)))

    (found,) = rejections_on(other, Outline(DMA3, Split(SplitAxis.COLS, 2)))

    assert (found.code.name, found.hint) == ("MGS512", "split rows")


def test_queries_that_need_all_keys_are_cut_by_heads_alone() -> None:
    text = """use "nvidia/h100"
system quad { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
workload w on quad {
  qkv = tensor bf16[4096, 6144]
  y = attention(all_to_all(qkv), heads=4, kv_heads=4)
}
"""
    heads = compile_text(f"{text}schedule s for w {{ split cols into 4; group own together }}").scenario().case
    assert heads.shape.pattern is Pattern.A2A_GEMM and heads.schedules
    with pytest.raises(CompileError) as caught:
        compile_text(f"{text}schedule s for w {{ split rows into 4; group own together }}")
    (found,) = caught.value.diagnostics
    assert (found.code.name, found.hint) == ("MGS511", "group own together, and split cols")
