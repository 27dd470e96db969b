"""A workload and the same with a cheap kernel behind it have one answer: shipped pairs, and each with a norm."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest

from magus.advisor import Advice, AdviceOptions, Advisor
from magus.compiler import compile_text
from magus.compiler.ir import Scenario
from tests.helpers.paths import ROOT

pytestmark = pytest.mark.usefixtures("compiled_core")

QUICK = AdviceOptions(top=3, bespoke=0)
NORM = "behind_it"
LAUNCHED_US = 5.0
"""Until a kernel begins that waits for all others, at most: an event, and the begin of the kernel."""

FILES = (
    "all_gather_h100",
    "all_reduce_h100",
    "all_to_all_mi300x",
    "declarative_plan",
    "decode_small_batch",
    "explicit_plan",
    "gemm_rs_h100",
    "hot_expert_mi300x",
    "llama70b_tp8_mi300x",
    "moe_combine_mi300x",
    "moe_dispatch_mi300x",
    "ring_attention_h100",
    "ulysses_h100",
    "templates/all_gather_gemm",
    "templates/collectives",
    "templates/gemm_all_reduce",
    "templates/gemm_all_to_all_gemm",
    "templates/gemm_reduce_scatter",
    "templates/ring_attention",
    "templates/two_nodes",
)
"""All but some: where the collective and the GEMM do not need each other, they are two ops once another one reads a
result.
"""

SMALL = "templates/all_gather_gemm", ("x = tensor bf16[8192,", "x = tensor bf16[1024,")
"""One with what is written there in place of something larger."""


@dataclass(frozen=True)
class Both:
    """The answer to a workload, and to the same with a norm behind it."""

    alone: Advice
    followed: Advice

    @property
    def norm_us(self) -> float:
        """What the norm adds to the baseline: of the library, or of the serial schedule of the same options."""
        return self.followed.serial.best_us - self.alone.serial.best_us

    @property
    def kernel_us(self) -> float:
        """The time of the norm's kernel, once it is launched."""
        result = self.followed.serial.result
        assert result is not None
        return result.op(NORM).makespan_ticks / 1e8


def blocks_of(text: str) -> Iterator[str]:
    """The blocks and lines at the top of a file."""
    depth, lines = 0, list[str]()
    for line in text.splitlines():
        code = line.partition("#")[0]
        lines.append(line)
        depth += code.count("{") - code.count("}")
        if depth == 0:
            yield "\n".join(lines)
            lines = []


def with_norm(block: str) -> str:
    """A block, with a norm of the last result if it is a workload."""
    if not block.lstrip().startswith("workload"):
        return block
    last = re.findall(r"^\s*(\w+)\s+=\s*(?!tensor)", block, re.MULTILINE)[-1]
    return f"{block[: block.rindex('}')].rstrip()}\n  {NORM} = norm({last})\n}}"


def pairs_of(file: str, smaller: tuple[str, str]) -> list[tuple[Scenario, Scenario]]:
    text = (ROOT / "examples" / f"{file}.mgs").read_text().replace(*smaller)
    kept = [block for block in blocks_of(text) if not re.match(r"\s*(schedule|expect|plan)\b", block)]
    alone, followed = (compile_text("\n".join(each)) for each in (kept, map(with_norm, kept)))
    graphs = {graph.name: graph for graph in followed.workloads}
    return [(scenario, graphs[scenario.name]) for scenario in alone.workloads if scenario.only_case is not None]


@cache
def answers(file: str, smaller: tuple[str, str]) -> tuple[Both, ...]:
    advisor = Advisor(None)
    found = pairs_of(file, smaller)
    assert found
    return tuple(Both(*(advisor.recommend(each, QUICK) for each in both)) for both in found)


def option_of(advice: Advice) -> object:
    """What is recommended for the op: its choice, or by whom nothing overlaps."""
    best = advice.recommended
    modes = [mode.body for mode in best.joint.modes] if best.several is not None else [best.choice]
    return "the usual one" if not modes or best.expression in ("serial", "library") else modes[0]


def is_at_the_edge(advice: Advice) -> bool:
    """Whether the time of a norm can bring the best overlap to within what the profile resolves of the baseline."""
    best_us = min((each.best_us for each in advice.candidates if not each.is_serial), default=0.0)
    return abs(best_us / advice.serial.best_us / (1 + advice.case.resolution) - 1) < 0.005


WHOLE = "", ""
CASES = [("decode_small_batch", WHOLE), SMALL, *((each, WHOLE) for each in FILES if each != "decode_small_batch")]


@pytest.mark.quick(1)
@pytest.mark.parametrize(("file", "smaller"), CASES)
def test_a_norm_behind_a_workload_changes_nothing_but_the_times(file: str, smaller: tuple[str, str]) -> None:
    found = list(answers(file, smaller))
    assert found
    for both in found:
        alone, followed = both.alone, both.followed

        assert followed.verdict is alone.verdict
        assert followed.baseline_text == alone.baseline_text
        assert followed.confidence is alone.confidence or is_at_the_edge(alone)
        if not (alone.recommended.is_serial and followed.recommended.expression in ("serial", "library")):
            assert option_of(followed) == alone.recommended.choice
        norm = both.norm_us
        assert both.kernel_us <= norm <= both.kernel_us + LAUNCHED_US
        gain = (alone.serial.best_us + norm) / (alone.recommended.best_us + norm)
        assert followed.speedup == pytest.approx(gain, rel=0.01)
