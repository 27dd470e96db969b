"""Schedules derived from the graph of a machine: how far above the bound, and how much faster than named algorithms.

Times are simulated by ``magus advise``; the machines are those on which named algorithms load links unevenly.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from itertools import combinations, product

from magus.advisor import AdviceOptions, Advisor
from magus.advisor.candidates.forests import forests, trees_of
from magus.advisor.solver.forest import packings
from magus.compiler import compile_text
from magus.compiler.ir import TICKS_PER_US, Scenario
from magus.compiler.planning.build import build_op_plan
from magus.simcore import simulate_op

from .harness.report import Figure, main

SIZES = {"16 MiB": (1 << 24, 1.20), "256 MiB": (1 << 28, 1.04)}
"""Bytes of the whole tensor, and by how much the bound may be exceeded."""
COLS = 4096
SMALL = {"64 KiB": 1 << 16, "512 KiB": 1 << 19}
SMALL_COLS = 128
Pairs = Sequence[tuple[int, int]]


def _clique(ranks: Sequence[int]) -> Pairs:
    return list(combinations(ranks, 2))


def _edges(**links: Pairs) -> str:
    return "edges(" + ", ".join(f"{name}={[list(pair) for pair in pairs]}" for name, pairs in links.items()) + ")"


_LINKS = """
link bridge extends nvlink { bandwidth 75 GB/s; achieved 65 GB/s }
link pcie5 extends nvlink { bandwidth 64 GB/s; achieved 50 GB/s; latency 1.5 us }
link single extends nvlink { bandwidth 25 GB/s; achieved 22 GB/s }
link double extends nvlink { bandwidth 50 GB/s; achieved 44 GB/s }
"""
_MI300X, _H100 = ('use "amd/mi300x"\n', "MI300X"), ('use "nvidia/h100"\n' + _LINKS, "H100")
_SINGLES = [(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)]
_DOUBLES = [(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)]
MACHINES = {
    "two triangles, two PCIe links": (
        _H100,
        6,
        _edges(bridge=[*_clique((0, 1, 2)), *_clique((3, 4, 5))], pcie5=[(2, 3), (0, 5)]),
    ),
    "two cliques of four": (_H100, 8, _edges(bridge=[*_clique(range(4)), *_clique(range(4, 8))], pcie5=[(3, 4)])),
    "cliques of five and three": (_H100, 8, _edges(bridge=[*_clique(range(5)), *_clique(range(5, 8))], pcie5=[(4, 5)])),
    "hybrid cube mesh": (_H100, 8, _edges(single=_SINGLES, double=_DOUBLES)),
    "mesh with a broken link": (_MI300X, 8, _edges(xgmi=[pair for pair in _clique(range(8)) if pair != (2, 5)])),
    "torus 4 x 4": (_MI300X, 16, "torus(xgmi, shape=[4, 4])"),
}

_NDV2 = """use "nvidia/a100"
link nv1 extends nvlink { bandwidth 25 GB/s; achieved 25 GB/s; latency 0.7 us }
link nv2 extends nvlink { bandwidth 50 GB/s; achieved 50 GB/s; latency 0.7 us }
link ib extends nvlink { bandwidth 12.5 GB/s; achieved 12.5 GB/s; latency 1.3 us }
"""
_ONE, _TWO = (
    [(a + far, b + far) for far in (0, 8) for a, b in pairs]
    for pairs in (
        [(0, 2), (0, 3), (1, 2), (1, 5), (3, 7), (4, 6), (4, 7), (5, 6)],
        [(0, 1), (0, 4), (1, 3), (2, 3), (2, 6), (4, 5), (5, 7), (6, 7)],
    )
)
NDV2 = "NDv2, 2 chassis"
"""Rates, links and latencies of ``topologies/ndv2.py`` of microsoft/TE-CCL; there the link between is one way each."""
PUBLISHED = {NDV2: ((_NDV2, "A100"), 16, _edges(nv1=_ONE, nv2=_TWO, ib=[(0, 8)]))}
PUBLISHED_BYTES, PUBLISHED_GB_PER_S, PUBLISHED_S, UNIT_BYTES = 10**9, 22.86, 43.4, 1 << 16

SIX = next(iter(MACHINES))
PRODUCT_US, SUM = 388, 1.12
"""Of a product of 6144 rows beside their gather on six GPUs; and of an all_reduce of 256 MiB over its bound."""


def measure() -> Iterator[Figure]:
    """Yield for each machine and size the time over the bound, and over the fastest named algorithm."""
    advisor = Advisor.load()
    yield from _published()
    yield from _beside_a_kernel(advisor)
    for name in MACHINES:
        packings.cache_clear()
        scenario = _scenario(name, SIZES["16 MiB"][0])
        begun = time.process_time()
        trees_of(scenario.case)
        yield Figure(f"{name}: trees found in", time.process_time() - begun, "CPU s", "lower", 1)
        for size, (num_bytes, most) in SIZES.items():
            advice = advisor.recommend(_scenario(name, num_bytes), AdviceOptions())
            assert advice.bound is not None, "a collective has a bound"
            simulated = [one for one in advice.candidates if one.simulated_ticks is not None and one.choice is not None]
            named = min(one.ticks for one in simulated if one.choice is not None and not one.choice.trees)
            best = advice.recommended.ticks
            yield Figure(f"{name}, {size}: over the bound", best / advice.bound.ticks, "x", "lower", most)
            yield Figure(f"{name}, {size}: fastest named algorithm over this", named / best, "x", "higher", 1)

        summed = advisor.recommend(_scenario(name, SIZES["256 MiB"][0], "y = all_reduce(x)", ""), AdviceOptions())
        assert summed.bound is not None, "a collective has a bound"
        over = summed.recommended.ticks / summed.bound.ticks
        yield Figure(f"{name}, 256 MiB: all_reduce over the bound", over, "x", "lower", SUM)
        yield from small(advisor, name)


def small(advisor: Advisor, name: str) -> Iterator[Figure]:
    """Yield the times of small collectives on a machine, and how much longer the fastest named algorithm takes."""
    for (size, num_bytes), collective in product(SMALL.items(), ("all_gather", "all_reduce", "broadcast")):
        layout = "shard rows" if collective == "all_gather" else ""
        scenario = _scenario(name, num_bytes, f"y = {collective}(x)", layout, SMALL_COLS)
        advice = advisor.recommend(scenario, AdviceOptions())
        known = [one for one in advice.candidates if one.simulated_us is not None and one.choice is not None]
        named = min(one.best_us for one in known if one.choice is not None and not one.choice.trees)
        best = advice.recommended.best_us
        yield Figure(f"{name}, {size}: {collective}", best, "us", "lower", named)
        yield Figure(f"{name}, {size}: {collective}, fastest named algorithm over this", named / best, "x", "higher", 1)


def _published() -> Iterator[Figure]:
    """Yield the bandwidth of an all_gather as TE-CCL counts it, of 1 GB in all, and the seconds that synthesis takes.

    Trees are found and a few numbers of chunks simulated, in units of 64 KiB.
    """
    case, begun = _scenario(NDV2, PUBLISHED_BYTES).case, time.process_time()
    packings.cache_clear()
    plans = [build_op_plan(case, choice) for choice in forests(case)]
    least = min(simulate_op(case, plan, unit_bytes=UNIT_BYTES).total_ticks for plan in plans)
    assert case.shape.moved is not None, "a collective moves a tensor"
    rate = case.shape.moved.num_bytes / (least / TICKS_PER_US) / 1000
    yield Figure(f"{NDV2}, all_gather of 1 GB", rate, "GB/s", "higher", PUBLISHED_GB_PER_S)
    yield Figure(f"{NDV2}, found and simulated in", time.process_time() - begun, "CPU s", "lower", PUBLISHED_S)


def _beside_a_kernel(advisor: Advisor) -> Iterator[Figure]:
    """Yield the times of AG+GEMM on six GPUs: of trees, in packets and by lines, and of the fastest other schedule."""
    product = "w = tensor bf16[4096, 24576] shard cols; y = gemm(all_gather(x), w)"
    advice = advisor.recommend(_scenario(SIX, 48 << 20, product), AdviceOptions())
    known = [one for one in advice.candidates if one.simulated_us is not None and one.choice is not None]
    times = [one.best_us for one in known if one.choice is not None and one.choice.trees]
    others = [one.best_us for one in known if one.choice is not None and not one.choice.trees]
    plans = [one.schedule for one in known if one.choice is not None and one.choice.trees]
    packets = [simulate_op(advice.case, plan).total_ticks / TICKS_PER_US for plan in plans]
    yield Figure(f"{SIX}, AG+GEMM of 48 MiB: trees, in packets", min(packets), "us", "lower", PRODUCT_US)
    yield Figure(f"{SIX}, AG+GEMM of 48 MiB: trees, as advised", min(times), "us", "lower", PRODUCT_US)
    yield Figure(
        f"{SIX}, AG+GEMM of 48 MiB: fastest other schedule over this", min(others) / min(times), "x", "higher", 1
    )


def _scenario(
    name: str, num_bytes: int, work: str = "y = all_gather(x)", layout: str = "shard rows", cols: int = COLS
) -> Scenario:
    (head, gpu), ranks, fabric = (MACHINES | PUBLISHED)[name]
    rows = num_bytes // (2 * cols) // ranks * ranks
    system = f"system s {{ gpus {ranks} x {gpu}; fabric {fabric} }}"
    text = f"workload w on s {{ x = tensor bf16[{rows}, {cols}] {layout}; {work} }}"
    return compile_text(f"{head}{system}\n{text}\n").scenario()


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", measure))
