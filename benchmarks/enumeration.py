"""How fast feasible schedules are enumerated: by CP-SAT on one core, and by the generator, which gives the same set.

The space is that of an AG+GEMM on 8 GPUs with every knob open, on a machine that has every protocol, monitors and
graphs, and without dominance rules. Times are of the processor, not of the clock, so that what else the machine does
matters less; the solver has one worker.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from magus.advisor import enumerate_space
from magus.advisor.solver import Space
from magus.advisor.solver.domains import Choices
from magus.advisor.solver.result import SAMPLE, diverse
from magus.compiler import compile_text
from magus.compiler.ir import OpCase

from .harness.report import Figure, main

T = TypeVar("T")

SOLVER_RATE = 20_000
"""Feasible schedules a second that the solver should find on one core."""

MACHINE = """use "nvidia/h100"
link wide extends nvlink { protocols simple, ll, ll128 }
gpu Full extends H100 { sync { monitor_wake 100 ns; monitor_entries 64; graph_launch 500 ns } }
system node { gpus 8 x Full; fabric switch(nvswitch, link=wide) }
workload up on node {
  x = tensor bf16[8192, 8192] shard rows
  w = tensor bf16[8192, 28672] shard cols
  y = gemm(all_gather(x), w)
}
"""
OPEN = "explore up { everything; dominance off }"
LARGE = (
    "explore up { everything; dominance off; chunks 8..1024 x2; depth 1..32 x2; streams 1, 2, 4, 8; "
    "engine dma, dma(4), dma(7, prelaunched), sm(8), sm(16), sm(32), sm(16, shared) }"
)


def scenario_of(explore: str) -> OpCase:
    """The machine and its workload, with what to explore."""
    return compile_text(f"{MACHINE}{explore}\n").scenario("up").case


def figures() -> Iterator[Figure]:
    """All figures, in the order they are measured."""
    for label, scenario, target in (
        ("all knobs", scenario_of(OPEN), SOLVER_RATE),
        ("all knobs, many values", scenario_of(LARGE), None),
    ):
        yield from _rates(label, scenario, target)


def _rates(label: str, scenario: OpCase, target: float | None) -> Iterator[Figure]:
    enumerate_space(scenario, limit=1, generated=False)  # loads the solver
    solver_s, solved = _worked(partial(enumerate_space, scenario, generated=False))
    generator_s, generated = _worked(partial(enumerate_space, scenario, generated=True))
    assert solved.choices == generated.choices, "the generator gives what the solver states"
    size = len(solved.choices)
    load = f"{label}, {size:,} feasible schedules"
    yield Figure(f"{load}, CP-SAT, one core", size / solver_s, "schedules/s", "higher", target)
    yield Figure(f"{load}, generator", size / generator_s, "schedules/s", "higher")
    sample_s, _ = _worked(partial(_sample, generated))
    yield Figure(f"{load}, sample of {SAMPLE} that differ most", sample_s, "s", "lower")


def _worked(action: Callable[[], T], repeats: int = 2) -> tuple[float, T]:
    """Seconds of the processor in the fastest of ``repeats`` calls, and what the last returned."""
    best, results = float("inf"), list[T]()
    for _ in range(repeats):
        begin = time.process_time()
        results.append(action())
        best = min(best, time.process_time() - begin)
    return best, results[-1]


def _sample(space: Space) -> int:
    assert isinstance(space.choices, Choices), "an enumerated space keeps codes"
    return len(diverse(space.choices.knobs, space.choices.codes, SAMPLE))


if __name__ == "__main__":
    raise SystemExit(main(__doc__ or "", figures))
