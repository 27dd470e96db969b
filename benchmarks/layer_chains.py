"""Two GEMMs with an all_to_all between them, and a norm: two ops cut along each other, against one plan and whole."""

import sys
from collections.abc import Iterator

from magus.advisor import Advisor
from magus.advisor.candidates.advice import Advice
from magus.advisor.layers.recommend import recommend_workload
from magus.compiler import compile_text
from magus.compiler.ir import TICKS_PER_US

from .harness.report import Figure, main

TEXT = """
use "nvidia/h100"
system hgx {{ gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }}
workload chain on hgx {{
  x = tensor bf16[{rows}, {inner}]
  w = tensor bf16[{inner}, {columns}]
  v = tensor bf16[{columns}, {then}]
  y = gemm(all_to_all(gemm(x, w)), v)
  {more}
}}
"""
SHAPES = (
    (8192, 4096, 4096, 4096),
    (8192, 4096, 1024, 1024),
    (16384, 4096, 512, 4096),
    (4096, 8192, 4096, 1024),
    (32768, 7168, 2048, 7168),
)
"""Rows, columns and inner dimension of the first GEMM, and columns of the second."""


def measure() -> Iterator[Figure]:
    """Yield for each shape what advice finds, as graph and as pair."""
    for shape in SHAPES:
        yield from _of_shape(*shape)


def _of_shape(rows: int, columns: int, inner: int, then: int) -> Iterator[Figure]:
    def text(more: str) -> str:
        return TEXT.format(rows=rows, columns=columns, inner=inner, then=then, more=more)

    name = f"{rows} x {columns} x {inner}, then x {then}"
    advice = recommend_workload(compile_text(text("z = norm(y)")).scenario())
    times = {
        along: min(one.ticks for one in advice.candidates if bool(one.joint.chained) is along)
        for along in (False, True)
    }
    pair = Advisor(None).recommend(compile_text(text("")).scenario())
    yield Figure(f"{name}: along", times[True] / TICKS_PER_US, "us", "lower")
    yield Figure(f"{name}: whole over along", times[False] / times[True], "x", "higher")
    alone = _until_the_norm(advice) / TICKS_PER_US
    yield Figure(f"{name}: answer over that of one plan", alone / pair.recommended.best_us, "x", "lower")


def _until_the_norm(advice: Advice) -> int:
    """When both GEMMs have ended in the answer."""
    begins = [op.begin_ticks for op in advice.ops]
    return max(op.end_ticks for op in advice.ops if op.name != "z") - min(begins)


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", measure))
