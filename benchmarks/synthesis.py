"""Schedules derived from the graph of a machine: how far above the bound, and how much faster than named algorithms.

Times are simulated by ``magus advise``; the machines are those on which named algorithms load links unevenly.
"""

import gc
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path

from magus.advisor import Advice, AdviceOptions, Advisor
from magus.advisor.bounds.lower_bound import quick_bound_ticks
from magus.advisor.candidates.candidate import Candidate
from magus.advisor.candidates.forests import SM_COUNTS, forests, trees_of, try_forests
from magus.advisor.solver.forest import packings
from magus.advisor.solver.whole_shards import whole_shards
from magus.compiler import compile_text
from magus.compiler.ir import TICKS_PER_US, EngineChoice, EngineKind, OpChoice, Scenario
from magus.compiler.planning.build import build_op_plan
from magus.simcore import simulate_op

from .harness.report import Figure, parser_of, tell

SIZES = {"16 MiB": (1 << 24, 1.20), "256 MiB": (1 << 28, 1.04)}
"""Bytes of the whole tensor, and by how much the bound may be exceeded."""
COLS = 4096
SMALL = {"64 KiB": 1 << 16, "512 KiB": 1 << 19}
SMALL_COLS = 128
Pairs = Sequence[tuple[int, int]]


def _clique(ranks: Sequence[int]) -> Pairs:
    return list(combinations(ranks, 2))


def _edges(switches: int = 0, **links: Pairs) -> str:
    named = (f"{name}={[list(pair) for pair in pairs]}" for name, pairs in links.items())
    return f"edges({', '.join((f'switches={switches}', *named))})"


_LINKS = """
link bridge extends nvlink { bandwidth 75 GB/s; achieved 65 GB/s }
link pcie5 extends nvlink { bandwidth 64 GB/s; achieved 50 GB/s; latency 1.5 us }
link single extends nvlink { bandwidth 25 GB/s; achieved 22 GB/s }
link double extends nvlink { bandwidth 50 GB/s; achieved 44 GB/s }
link nic { bandwidth 50 GB/s; achieved 45 GB/s; latency 1.5 us }
link narrow { bandwidth 12.5 GB/s; achieved 12.5 GB/s; latency 1.3 us }
"""
_A100 = ('use "nvidia/a100"\nlink pcie4 { bandwidth 31.5 GB/s; achieved 25.2 GB/s; latency 1 us }\n', "A100")
_MI300X, _H100 = ('use "amd/mi300x"\n', "MI300X"), ('use "nvidia/h100"\n' + _LINKS, "H100")
_SINGLES = [(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)]
_DOUBLES = [(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)]
_CHASSIS = {
    "single": [(first + a, first + b) for first in (0, 8) for a, b in _SINGLES],
    "double": [(first + a, first + b) for first in (0, 8) for a, b in _DOUBLES],
    "narrow": [(0, 8)],
}
MACHINES = {
    "two triangles, two PCIe links": (
        _H100,
        6,
        _edges(bridge=[*_clique((0, 1, 2)), *_clique((3, 4, 5))], pcie5=[(2, 3), (0, 5)]),
    ),
    "two cliques of four": (_H100, 8, _edges(bridge=[*_clique(range(4)), *_clique(range(4, 8))], pcie5=[(3, 4)])),
    "cliques of five and three": (_H100, 8, _edges(bridge=[*_clique(range(5)), *_clique(range(5, 8))], pcie5=[(4, 5)])),
    "hybrid cube mesh": (_H100, 8, _edges(single=_SINGLES, double=_DOUBLES)),
    "two chassis of NDv2": (_H100, 16, _edges(0, **_CHASSIS)),
    "mesh with a broken link": (_MI300X, 8, _edges(xgmi=[pair for pair in _clique(range(8)) if pair != (2, 5)])),
    "torus 4 x 4": (_MI300X, 16, "torus(xgmi, shape=[4, 4])"),
    "torus 4 x 4 x 4": (_MI300X, 64, "torus(xgmi, shape=[4, 4, 4])"),
    "PCIe box of two switches": (
        _A100,
        8,
        _edges(pcie4=[*product(range(4), (8,)), *product(range(4, 8), (9,)), (8, 9)], switches=2),
    ),
    "two nodes of eight on rails": (_H100, 16, "rails(nvswitch, link=nvlink, node=8, nic=nic)"),
    "two cliques, GPUs in turn": (
        _H100,
        8,
        _edges(bridge=[*_clique(range(0, 8, 2)), *_clique(range(1, 8, 2))], pcie5=[(6, 1)]),
    ),
}

PUBLISHED = Path(__file__).parent / "data" / "published.mgs"
UNITS = {16: 1 << 12, 1000: 1 << 16}
"""Million bytes of the whole tensor, and the units in which those are simulated."""


@dataclass(frozen=True, slots=True)
class Published:
    """An all_gather of so many million bytes: GB/s and seconds of its solver in a repository, None without."""

    workload: str
    megabytes: int
    gb_per_s: float
    solver_s: float | None


OF_OTHERS = (
    Published("on_ndv2", 16, 22.86, 44.7),
    Published("on_ndv2", 1000, 22.86, 43.4),
    Published("on_dgx2", 16, 129.03, 1261.8),
    Published("on_dgx2", 1000, 129.03, 2699.9),
    Published("on_ndv2x4", 16, 15.38, 237.0),
    Published("on_ndv2x4", 1000, 15.38, 221.5),
    Published("on_mesh4", 1000, 200, 1.4),
    Published("on_mesh6", 1000, 200, 28.8),
    Published("on_a100", 1000, 346.7, None),
    Published("on_mi250", 1000, 342.9, None),
    Published("on_mi250x2", 1000, 354.1, None),
    Published("on_torus4x4", 1000, 213.3, None),
    Published("on_torus4x4x4", 1000, 304.8, None),
)
"""``output_provided`` of microsoft/TE-CCL, the fastest of its three runs, and its ``schedules`` for the meshes; of
ForestColl, and of the tori, of which it has none, the optimum by its formula."""

SIX = next(iter(MACHINES))
_GEMM = "x = tensor bf16[6144, 24576] shard cols; w = tensor bf16[24576, 4096] shard rows; y = {}(gemm(x, w))"
PRODUCTS = {
    "AG+GEMM of 48 MiB": (
        "x = tensor bf16[6144, 4096] shard rows; w = tensor bf16[4096, 24576] shard cols; y = gemm(all_gather(x), w)",
        388,
    ),
    "GEMM+RS of 48 MiB": (_GEMM.format("reduce_scatter"), None),
    "GEMM+AR of 48 MiB": (_GEMM.format("all_reduce"), None),
}
"""Products of 6144 x 4096 x 4096 a rank on six GPUs, and in how many us the first is to be done."""
SUM, ADVICE_S = 1.12, 20
"""By how much an all_reduce may exceed its bound; CPU s of an answer."""
LARGE = {
    "torus 4 x 4 x 8": (_MI300X, 128, "torus(xgmi, shape=[4, 4, 8])"),
    "torus 8 x 8 x 4": (_MI300X, 256, "torus(xgmi, shape=[8, 8, 4])"),
    "torus 8 x 8 x 8": (_MI300X, 512, "torus(xgmi, shape=[8, 8, 8])"),
}
"""Tori of more GPUs than trees of each root are sought for: there one tree is simulated, and no answer is asked for."""
LARGE_UNITS = {"all_gather": (1 << 26, 1 << 14, 1.1), "all_reduce": (1 << 26, 1 << 16, 1.2)}
"""Bytes of the whole tensor, units of the simulation, and by how much the bound may be exceeded."""
ALL_REDUCE, EXCHANGE, SMALL_ROW = "256 MiB: all_reduce", "16 MiB: all_to_all", "64 KiB and 512 KiB"


def measure(only: str = "") -> Iterator[Figure]:
    """Yield the figures of the rows whose name contains ``only``.

    For each machine and size the time over the bound, and that of named algorithms over it: of those that are ruled out
    the time of the busiest link, which is less than theirs.
    """
    advisor = Advisor.load()
    for published in OF_OTHERS:
        if only in f"{published.workload} {published.megabytes}":
            yield from _beside(published)
    for work in PRODUCTS:
        if only in f"{SIX}, {work}":
            yield from _beside_a_kernel(advisor, work)
    for name in MACHINES:
        for size in (*SIZES, ALL_REDUCE, EXCHANGE, SMALL_ROW):
            if only in f"{name}, {size}":
                yield from _row(advisor, name, size)
    for name, op in product(LARGE, LARGE_UNITS):
        if only in f"{name}, 64 MiB: {op}":
            yield from _of_many(name, op)


def _of_many(name: str, op: str) -> Iterator[Figure]:
    """Yield the time of one tree on a large torus over the bound, if there is one, and that of double_ring over it.

    An all_reduce of so many by double_ring has more sums than a simulation takes.
    """
    num_bytes, unit_bytes, most = LARGE_UNITS[op]
    case = _scenario(name, num_bytes, f"y = {op}(x)", "shard rows" if op == "all_gather" else "").case
    begun, rings = time.process_time(), OpChoice("double_ring", case.num_ranks, EngineChoice(EngineKind.DMA, 14))
    found = [one for one in forests(case) if one.template == "torus_tree"]
    for choice in found:
        took = simulate_op(case, build_op_plan(case, choice), unit_bytes=unit_bytes).total_ticks
        spent = time.process_time() - begun
        yield Figure(f"{name}, 64 MiB: {op} over the bound", took / quick_bound_ticks(case), "x", "lower", most)
        yield Figure(f"{name}, 64 MiB: {op}, found and simulated in", spent, "CPU s", "lower", ADVICE_S)
        if op == "all_gather":
            other = simulate_op(case, build_op_plan(case, rings), unit_bytes=unit_bytes).total_ticks
            yield Figure(f"{name}, 64 MiB: {op}, double_ring over this", other / took, "x", "higher", 1)


def _row(advisor: Advisor, name: str, size: str) -> Iterator[Figure]:
    if size in SIZES:
        num_bytes, most = SIZES[size]
        yield from _gathered(advisor, name, size, num_bytes, most)
    elif size == SMALL_ROW:
        yield from small(advisor, name)
    elif size == EXCHANGE:
        yield from _exchanged(advisor, name)
    else:
        scenario, begun = _scenario(name, SIZES["256 MiB"][0], "y = all_reduce(x)", ""), time.process_time()
        packings.cache_clear()
        summed = advisor.recommend(scenario, AdviceOptions())
        assert summed.bound is not None, "a collective has a bound"
        over = summed.recommended.ticks / summed.bound.ticks
        yield Figure(f"{name}, {size} over the bound", over, "x", "lower", SUM)
        yield Figure(f"{name}, {size}: whole advice", time.process_time() - begun, "CPU s", "lower", ADVICE_S)


def _simulated(advice: Advice, *, trees: bool) -> list[Candidate]:
    """The candidates that were simulated and are trees, or named algorithms."""
    known = (one for one in advice.candidates if one.simulated_ticks is not None and one.choice is not None)
    return [one for one in known if one.choice is not None and bool(one.choice.trees) is trees]


def _gathered(advisor: Advisor, name: str, size: str, num_bytes: int, most: float) -> Iterator[Figure]:
    scenario = _scenario(name, num_bytes)
    packings.cache_clear()
    begun = time.process_time()
    trees_of(scenario.case)
    yield Figure(f"{name}, {size}: trees found in", time.process_time() - begun, "CPU s", "lower", 1)
    advice = advisor.recommend(scenario, AdviceOptions())
    took = time.process_time() - begun
    assert advice.bound is not None, "a collective has a bound"
    others = [one for one in advice.candidates if one.choice is not None and not one.choice.trees]
    simulated = [one.ticks for one in others if one.simulated_ticks is not None]
    named = min(simulated + [one.least_ticks for one in others if one.least_ticks is not None])
    best = advice.recommended.ticks
    yield Figure(f"{name}, {size}: over the bound", best / advice.bound.ticks, "x", "lower", most)
    yield Figure(f"{name}, {size}: fastest named algorithm over this", named / best, "x", "higher", 1)
    yield Figure(f"{name}, {size}: whole advice", took, "CPU s", "lower", ADVICE_S)


def _exchanged(advisor: Advisor, name: str) -> Iterator[Figure]:
    """Yield the time of an all_to_all of 16 MiB over the bound of any ways, and that of named algorithms over it."""
    advice = advisor.recommend(_scenario(name, 1 << 24, "y = all_to_all(x)", ""), AdviceOptions())
    assert advice.bound is not None, "a collective has a bound"
    named, best = min(one.ticks for one in _simulated(advice, trees=False)), advice.recommended.ticks
    yield Figure(f"{name}, {EXCHANGE} over the bound", best / advice.bound.ticks, "x", "lower", 1.2)
    yield Figure(f"{name}, {EXCHANGE}, fastest named algorithm over this", named / best, "x", "higher", 1)


def small(advisor: Advisor, name: str) -> Iterator[Figure]:
    """Yield the times of small collectives on a machine, and how much longer the fastest named algorithm takes."""
    for (size, num_bytes), collective in product(SMALL.items(), ("all_gather", "all_reduce", "broadcast")):
        layout = "shard rows" if collective == "all_gather" else ""
        scenario = _scenario(name, num_bytes, f"y = {collective}(x)", layout, SMALL_COLS)
        whole_shards.cache_clear()
        begun = time.process_time()
        if any(whole_shards(scenario.case, sms) for sms in SM_COUNTS):
            took = time.process_time() - begun
            yield Figure(f"{name}, {size}: {collective}, whole shards found in", took, "CPU s", "lower", 1)
        advice = advisor.recommend(scenario, AdviceOptions())
        named, best = min(one.best_us for one in _simulated(advice, trees=False)), advice.recommended.best_us
        yield Figure(f"{name}, {size}: {collective}", best, "us", "lower", named)
        yield Figure(f"{name}, {size}: {collective}, fastest named algorithm over this", named / best, "x", "higher", 1)


def _beside(published: Published) -> Iterator[Figure]:
    """Yield the bandwidth of an all_gather as published synthesis counts it, and the seconds that it takes here.

    That is for the trees and for all simulations by which advice chooses the number of chunks.
    """
    text = PUBLISHED.read_text().replace("MB = 1000", f"MB = {published.megabytes}")
    case, begun = compile_text(text).scenario(published.workload).case, time.process_time()
    packings.cache_clear()
    trees_of(case)
    found = time.process_time() - begun

    times = list[int]()

    def timer(choices: Sequence[OpChoice]) -> list[tuple[int, OpChoice]]:
        plans, unit_bytes = [build_op_plan(case, one) for one in choices], UNITS[published.megabytes]
        timed = [simulate_op(case, plan, unit_bytes=unit_bytes).total_ticks for plan in plans]
        times.extend(timed)
        return list(zip(timed, choices, strict=True))

    try_forests(case, list(forests(case)), timer)
    least = min(times)
    assert case.shape.moved is not None, "a collective moves a tensor"
    rate = case.shape.moved.num_bytes / (least / TICKS_PER_US) / 1000
    name = f"{published.workload} {published.megabytes}"
    yield Figure(f"{name} MB: all_gather", rate, "GB/s", "higher", published.gb_per_s)
    yield Figure(f"{name} MB: trees found in", found, "CPU s", "lower", published.solver_s)
    yield Figure(
        f"{name} MB: found and simulated in", time.process_time() - begun, "CPU s", "lower", published.solver_s
    )


def _beside_a_kernel(advisor: Advisor, work: str) -> Iterator[Figure]:
    """Yield the times of a product on six GPUs: of trees, in packets and by lines, and of the fastest without trees."""
    text, most = PRODUCTS[work]
    advice = advisor.recommend(_on(SIX, text), AdviceOptions())
    planted, others = (_simulated(advice, trees=trees) for trees in (True, False))
    packets = [simulate_op(advice.case, one.schedule).total_ticks / TICKS_PER_US for one in planted]
    times = [one.best_us for one in planted]
    yield Figure(f"{SIX}, {work}: trees, in packets", min(packets), "us", "lower", most)
    yield Figure(f"{SIX}, {work}: trees, as advised", min(times), "us", "lower", most)
    yield Figure(
        f"{SIX}, {work}: fastest other schedule over this",
        min(one.best_us for one in others) / min(times),
        "x",
        "higher",
        1,
    )


def _scenario(
    name: str, num_bytes: int, work: str = "y = all_gather(x)", layout: str = "shard rows", cols: int = COLS
) -> Scenario:
    rows = num_bytes // (2 * cols) // (MACHINES | LARGE)[name][1] * (MACHINES | LARGE)[name][1]
    return _on(name, f"x = tensor bf16[{rows}, {cols}] {layout}; {work}")


def _on(name: str, work: str) -> Scenario:
    (head, gpu), ranks, fabric = (MACHINES | LARGE)[name]
    system = f"system s {{ gpus {ranks} x {gpu}; fabric {fabric} }}"
    return compile_text(f"{head}{system}\nworkload w on s {{ {work} }}\n").scenario()


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument(
        "rows", nargs="?", default="", help="only rows whose name contains this, such as 'torus 4 x 4, 16'"
    )
    arguments = parser.parse_args()
    gc.set_threshold(300_000)  # as the commands do
    tell(measure(arguments.rows), as_json=arguments.json)
