"""Trees derived from a network compete with the named algorithms where ranks do not all see the same."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from math import prod
from random import Random

import pytest

from magus.advisor import AdviceOptions, Advisor
from magus.advisor.bounds.link_loads import relayed_load
from magus.advisor.bounds.lower_bound import lower_bound
from magus.advisor.candidates.forests import (
    CARRIED,
    HUGE_BYTES,
    LEAST_BYTES,
    SM_BYTES,
    SUMS,
    forests,
    left_out,
    neighbours_of,
    trees_of,
    try_forests,
)
from magus.advisor.solver.forest import EARLY, LARGE, SHALLOW, packings
from magus.advisor.solver.trees import TreeFlow
from magus.advisor.work import workers
from magus.advisor.work.workers import SimulationJob, run_job
from magus.compiler import compile_text
from magus.compiler.ir import CopyProtocol, EngineChoice, EngineKind, Kernels, OpChoice, Scenario, ShouldStop, Transfer
from magus.compiler.planning.build import build_op_plan
from magus.runtime import carry_out
from magus.runtime.run import job_of_op
from magus.simcore import Result, simulate_op
from tests.helpers.some import some

CLIQUES = "[[0, 2], [0, 4], [2, 4], [1, 3], [1, 5], [3, 5], [0, 1]]"


def scenario_of(
    collective: str, rows: int = 1536, explore: str = "", fabric: str = f"edges(xgmi={CLIQUES})", ranks: int = 6
) -> Scenario:
    layout = " shard rows" if collective == "all_gather" else ""
    return compile_text(f"""use "amd/mi300x"
link slow extends xgmi {{ bandwidth 16 GB/s; achieved 12 GB/s }}
system box {{ gpus {ranks} x MI300X; fabric {fabric} }}
workload one on box {{ x = tensor bf16[{rows // ranks * ranks}, 1024]{layout}; y = {collective}(x) }}
{explore}""").scenario()


def test_links_of_large_tensors_are_to_be_done_less_early() -> None:
    rows = HUGE_BYTES // 2048  # of 2 KiB each, of which all six have as many
    for moved, shapes in ((rows - 6, (*SHALLOW[:2], *EARLY)), (rows + 6, LARGE)):
        case = scenario_of("all_reduce", rows=moved).case
        engines = case.gpu.dma.engines
        assert trees_of(case) == packings(case.system.fabric, 6, TreeFlow.BOTH, engines, shapes)


@pytest.mark.slow
@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "all_reduce"])
def test_they_are_faster_than_every_named_algorithm(collective: str) -> None:
    advice = Advisor().recommend(scenario_of(collective, rows=6144), AdviceOptions(bespoke=0))
    named = [one for one in advice.candidates if one.choice is not None and not one.choice.trees]
    planted = [one for one in advice.candidates if one.choice is not None and one.choice.trees]

    assert 1 <= len(planted) <= 2 and advice.recommended in planted
    assert advice.recommended.best_us < min(one.best_us for one in named if one.simulated_ticks is not None)
    assert advice.bound is not None and advice.recommended.ticks >= advice.bound.ticks


def drawn(seed: int) -> tuple[int, str]:
    """An irregular machine of five to eight GPUs: links of two rates, some of one way, in one piece each way."""
    random = Random(seed)
    ranks = random.randint(5, 8)
    joined = [(random.randrange(rank), rank) for rank in range(1, ranks)]
    more = random.sample([pair for pair in combinations(range(ranks), 2) if pair not in joined], random.randint(2, 6))
    ways = [[*pair] for pair in joined] + [random.choice(([*pair], f"{pair[0]} -> {pair[1]}")) for pair in more]
    links = {name: ", ".join(map(str, ways[first::2])) for first, name in enumerate(("xgmi", "slow"))}
    return ranks, f"edges({', '.join(f'{name}=[{pairs}]' for name, pairs in links.items())})"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("collective", "seed"), [*product(("all_gather", "reduce_scatter", "all_reduce", "broadcast"), range(3))]
)
def test_no_named_algorithm_is_faster_than_the_answer_on_machines_that_are_drawn(collective: str, seed: int) -> None:
    ranks, fabric = drawn(seed)
    scenario = scenario_of(collective, 2048, fabric=fabric, ranks=ranks)
    advice = Advisor().recommend(scenario, AdviceOptions())
    named = [one for one in advice.candidates if one.choice is not None and not one.choice.trees]
    best = advice.recommended

    assert best.best_us <= min(one.best_us for one in some(named) if one.simulated_ticks is not None)
    assert advice.bound is not None and best.ticks >= advice.bound.ticks
    assert carry_out(*job_of_op(scenario.case, best.schedule), range(1)).exact


@pytest.mark.slow
def test_an_answer_tells_algorithms_that_the_busiest_link_rules_out() -> None:
    triangles = "edges(xgmi=[[0, 1], [0, 2], [1, 2], [3, 4], [3, 5], [4, 5], [2, 3]])"
    advice = Advisor().recommend(scenario_of("all_gather", 12288, fabric=triangles), AdviceOptions(bespoke=0))
    ruled_out = [one for one in advice.candidates if one.least_ticks is not None]
    assert any(one.expression.startswith("ring(") for one in ruled_out)
    assert all(one.simulated_ticks is None and (one.least_ticks or 0) >= advice.recommended.ticks for one in ruled_out)
    assert any(reason.endswith("us on its busiest link.") for reason in advice.reasons)


def test_what_ranked_a_schedule_is_not_simulated_again_to_explain_it(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = list[SimulationJob]()

    def run(job: SimulationJob, should_stop: ShouldStop | None = None) -> Result:
        jobs.append(job)
        return run_job(job, should_stop)

    monkeypatch.setattr(workers, "run_job", run)
    options = AdviceOptions(bespoke=0, workers=1, threshold=False, sensitivity=False)
    advice = Advisor().recommend(scenario_of("all_gather", 768), options)
    best, ranked = advice.recommended.schedule, [job for job in jobs if job.explain_bytes is None]

    assert [job.unit_bytes for job in ranked if job.schedule == best] == [jobs[-2].explain_bytes]
    assert jobs[-2].schedule == best
    assert all(job.makespan_ticks is not None for job in jobs[-2:])
    assert advice.result is not None and advice.result.waterfall is not None


BROKEN = "edges(xgmi=[[0, 2], [0, 3], [1, 2], [1, 3], [2, 3]])"


def test_blocks_of_an_all_to_all_are_passed_on_around_a_broken_link() -> None:
    """Of the three ways between ranks 0 and 1 straight copies take one."""
    case = scenario_of("all_to_all", 16384, fabric=BROKEN, ranks=4).case
    straight = simulate_op(case, build_op_plan(case, OpChoice("serial", 4, EngineChoice(EngineKind.DMA, 3))))
    plans = [build_op_plan(case, choice) for choice in forests(case)]
    least, best = min((simulate_op(case, plan).total_ticks, plan.expression) for plan in plans)
    bound, load = lower_bound(case), relayed_load(case)

    assert load is not None and bound.ticks <= least < 0.9 * straight.total_ticks
    assert least < 1.05 * bound.ticks
    assert carry_out(*job_of_op(case, next(plan for plan in plans if plan.expression == best)), range(1)).exact


def test_no_ways_are_sought_where_straight_copies_load_no_link_more() -> None:
    assert not list(forests(scenario_of("all_to_all").case))


def test_kernels_follow_the_trees() -> None:
    """Of a product beside a collective half of a shard goes into a kernel first, then other sizes around the best."""
    text = f"""use "amd/mi300x"
system box {{ gpus 6 x MI300X; fabric edges(xgmi={CLIQUES}) }}
workload one on box {{ x = tensor bf16[12288, 1024] shard rows; w = tensor bf16[1024, 6144] shard cols
  y = gemm(all_gather(x), w) }}
"""
    case = compile_text(text).scenario().case
    tried = list(forests(case))
    assert {(one.chunks // 6, one.waves) for one in tried} == {(4, 2), (8, 4), (16, 8)}

    best = next(one for one in tried if one.waves == 4)
    assert {(one.chunks // 6, one.waves) for one in neighbours_of(case, best)} == {(4, 2), (16, 8), (8, 2), (8, 8)}
    built = [build_op_plan(case, one) for one in (best, replace(best, trees=()))]
    times = [simulate_op(case, plan, unit_bytes=4096).total_ticks for plan in built]
    assert times[0] < times[1], "trees load the bridge less than a direct exchange"


@pytest.mark.parametrize(("least", "best"), [(1e9, 24), (1e9, 1), (1e9, 2), (1e9, 500), (500.0, 24)])
def test_twice_as_many_chunks_are_tried_while_that_pays(least: float, best: int) -> None:
    """The time has its minimum at ``best`` chunks of a shard, or is far from ``least`` with any number of them."""
    case, tried = scenario_of("all_gather", rows=1 << 17).case, list[int]()
    first = some(list(forests(case)))
    packing = first[0].trees

    def timer(choices: Sequence[OpChoice]) -> list[tuple[int, OpChoice]]:
        pieces = [(one.chunks // 6, one) for one in choices if one.trees == packing]
        tried.extend(each for each, _ in pieces)
        return [(round(10_000 + 100 * (best / each + each / best)), one) for each, one in pieces]

    try_forests(case, first, timer, least)
    assert len(set(tried)) == len(tried) <= 11 and {3, 8} <= set(tried)
    assert tried[0] == 8 and (1 in tried) is (best < 4), "one chunk, if three are no slower than eight"
    if least < 1e9:
        assert max(tried) == 8, "others are much faster"
    elif best < 100:
        assert best in tried
    else:
        assert 64 < max(tried) <= 512, "it ends where simulations take long"

    tried.clear()
    try_forests(case, first, timer, bound=10_170)
    assert (max(tried) == 8) is (best < 3), "of a bound that is nearly reached no more is tried"


def test_of_many_chunks_the_fastest_sets_of_trees_alone_have_twice_as_many() -> None:
    """All sets gain as much by each doubling, and differ by less than what is left out at once."""
    case, tried = scenario_of("all_gather", rows=1 << 17).case, list[OpChoice]()
    first = some(list(forests(case)))
    places = {trees: place for place, trees in enumerate(dict.fromkeys(one.trees for one in first))}
    assert len(places) > CARRIED

    def timer(choices: Sequence[OpChoice]) -> list[tuple[int, OpChoice]]:
        tried.extend(choices)
        return [(100_000 + 10 * places[one.trees] + 600_000 // one.chunks, one) for one in choices]

    try_forests(case, first, timer)
    sets = {pieces: {places[one.trees] for one in tried if one.chunks == pieces * 6} for pieces in (16, 32)}
    assert sets == {16: set(range(len(places))), 32: set(range(CARRIED))}


def test_trees_whose_busiest_link_leaves_nothing_to_gain_have_no_more_chunks() -> None:
    case, tried = scenario_of("all_gather", rows=1 << 17).case, list[OpChoice]()
    first = some(list(forests(case)))
    kept = first[-1].trees
    assert {one.trees for one in first} > {kept}

    def timer(choices: Sequence[OpChoice]) -> list[tuple[int, OpChoice]]:
        tried.extend(choices)
        return [(100_000 + 600_000 // one.chunks, one) for one in choices]

    try_forests(case, first, timer, floor=lambda choice: 100_000 if choice.trees == kept else 112_450)
    assert {one.trees for one in tried if one.chunks > 8 * 6} == {kept}


@pytest.mark.parametrize(("gain", "more"), [(0.001, False), (0.003, True)])
def test_where_twice_as_many_chunks_gain_nothing_still_more_are_not_tried(gain: float, more: bool) -> None:
    case, tried = scenario_of("all_gather", rows=1 << 17).case, list[int]()
    first = some(list(forests(case)))
    times = {8: 110_000.0, 16: 105_000.0, 32: 100_000.0, 64: 100_000 * (1 - gain)}

    def timer(choices: Sequence[OpChoice]) -> list[tuple[int, OpChoice]]:
        pieces = [(one.chunks // 6, one) for one in choices if one.trees == first[0].trees]
        tried.extend(each for each, _ in pieces)
        return [(round(times.get(each, 120_000)), one) for each, one in pieces]

    try_forests(case, first, timer)
    assert 48 in tried and (96 in tried) is more


def test_of_equally_fast_numbers_of_chunks_fewer_are_looked_around() -> None:
    case, tried = scenario_of("all_gather", rows=1 << 17).case, list[int]()

    def timer(choices: Sequence[OpChoice]) -> list[tuple[int, OpChoice]]:
        tried.extend(one.chunks // 6 for one in choices)
        return [(10_000 if one.chunks > 6 else 20_000, one) for one in choices]

    try_forests(case, some(list(forests(case))), timer)
    assert {2, 4} <= set(tried) and 7 not in tried, "around 3, not 8"


def test_what_is_not_timed_is_not_tried_again() -> None:
    """As plans that stop without an end, or are too large."""
    case, tried = scenario_of("all_gather", rows=1 << 17).case, list[OpChoice]()

    def timer(choices: Sequence[OpChoice]) -> list[tuple[int, OpChoice]]:
        tried.extend(choices)
        assert len(tried) < 100, "for ever"
        return [(100_000 // one.chunks, one) for one in choices if one.chunks <= 8 * 6]

    try_forests(case, some(list(forests(case))), timer)
    assert max(one.chunks for one in tried) == 16 * 6 and len(set(tried)) == len(tried)


@pytest.mark.quick(1)
@pytest.mark.parametrize("shape", [(3, 3), (4, 1, 4), (3, 3, 3)])
def test_all_trees_of_a_torus_load_its_links_alike(shape: tuple[int, ...]) -> None:
    ranks, dimensions = prod(shape), sum(side > 1 for side in shape)
    case = scenario_of("all_gather", ranks=ranks, fabric=f"torus(xgmi, shape={list(shape)})").case
    *_, whole, two, one = trees_of(case)

    assert [len(one), len(two), len(whole)] == [ranks, 2 * ranks, 2 * dimensions * ranks]
    loads = Counter(
        (above, rank) for root, _, *above_of in whole for rank, above in enumerate(above_of) if rank != root
    )
    assert set(loads.values()) == {ranks - 1} and len(loads) == 2 * dimensions * ranks
    for trees in (one, two, whole):
        plan = build_op_plan(case, OpChoice("forest", ranks, EngineChoice(EngineKind.DMA, 4), trees=trees))
        assert carry_out(*job_of_op(case, plan), range(1)).exact


def test_of_many_ranks_of_a_torus_copies_are_whole_shards_that_arrive_early() -> None:
    """The tree of each root is the same, of shortest ways, and no link carries more than it has to."""
    case = scenario_of("all_gather", rows=64 * 64, ranks=64, fabric="torus(xgmi, shape=[4, 4, 4])").case
    trees, *_, one = trees_of(case)
    loads, others = (
        Counter((above, rank) for root, _, *parents in known for rank, above in enumerate(parents) if rank != root)
        for known in (trees, one)
    )
    assert len(trees) == 64 and len(loads) == 6 * 64 and max(loads.values()) == 11 < max(others.values())
    for root, _, *parents in trees:
        for rank in range(64):
            way = case.network.path(root, rank)
            assert len(way) == 1 or case.network.num_links(root, parents[rank]) == len(way) - 2
    plan = build_op_plan(case, OpChoice("forest", 64, EngineChoice(EngineKind.DMA, 6), trees=trees))
    assert carry_out(*job_of_op(case, plan), range(1)).exact


@pytest.mark.parametrize(
    ("collective", "shape", "rows", "template"),
    [
        ("all_gather", [4, 4, 8], 1 << 12, "forest"),
        ("all_reduce", [4, 4, 8], 1 << 12, "torus_tree"),
        ("all_gather", [6, 6, 6], 216 * 20, "torus_tree"),
        ("all_reduce", [8, 8, 8], 1 << 12, "none"),
        ("all_gather", [2, 8, 8], 1 << 12, "none"),
        ("all_gather", [6, 6, 6], 216, "too small"),
    ],
)
def test_it_is_said_above_how_many_ranks_no_trees_are_sought(
    collective: str, shape: list[int], rows: int, template: str
) -> None:
    """Above as many as a plan may have copies for there is one tree on a torus; small tensors have none anywhere."""
    fabric, ranks = f"torus(xgmi, shape={shape})", prod(shape)
    case = scenario_of(collective, rows=rows, ranks=ranks, fabric=fabric).case
    tried, said = list(forests(case)), left_out(case)
    assert {one.template for one in tried} == {template} - {"none", "too small"}
    assert all(one.chunks == ranks for one in tried), "more would be too many steps"
    assert ("GPUs here" in (said or "")) is (template == "none")
    asked = scenario_of(collective, rows=rows, ranks=ranks, fabric=fabric, explore="explore one { engine sm(16) }")
    assert left_out(asked.case) is None, "SMs have them for few GPUs alone"


def test_an_answer_says_that_trees_were_left_out() -> None:
    """Without simulations too; on a ring named algorithms load all links alike, so that nothing is said."""
    advisor, options = Advisor(), AdviceOptions(verify=False, bespoke=0)
    for fabric, said in (("torus(xgmi, shape=[2, 92])", True), ("ring(xgmi)", False)):
        advice = advisor.recommend(scenario_of("all_gather", rows=184 * 8, ranks=184, fabric=fabric), options)
        assert any("no schedules of trees were sought" in mark for mark in advice.marks) is said


@pytest.mark.slow
def test_of_many_ranks_fewer_are_tried_and_beat_a_ring() -> None:
    """A circle of 18 with two chords: one packing, two numbers of chunks."""
    circle = [[rank, (rank + 1) % 18] for rank in range(18)]
    case = scenario_of("all_gather", rows=9216, ranks=18, fabric=f"edges(xgmi={[*circle, [0, 9], [3, 12]]})").case
    tried = list(forests(case))

    assert [one.chunks // 18 for one in tried] == [3, 8] and len({one.trees for one in tried}) == 1
    ring = OpChoice("ring", 18 * 8, EngineChoice(EngineKind.DMA, 4))
    times = [simulate_op(case, build_op_plan(case, one), unit_bytes=8192).total_ticks for one in (*tried, ring)]
    assert min(times[:-1]) < 0.8 * times[-1]


def test_they_are_tried_where_they_may_pay() -> None:
    assert list(forests(scenario_of("all_gather").case))
    for other in (
        scenario_of("all_gather", rows=SM_BYTES.start // 2048 - 6),
        scenario_of("all_gather", fabric="full_mesh(xgmi)"),
        scenario_of("all_gather", rows=SM_BYTES.stop // 2048 + 6, explore="explore one { engine sm(16) }"),
        scenario_of("all_gather", explore="explore one { schedules ring }"),
    ):
        assert not list(forests(other.case))


def test_of_many_ranks_in_alike_nodes_algorithms_are_compared_alone() -> None:
    switch, nodes = (
        "switch hub { ports 9; bandwidth 100 GB/s; latency 1 us }",
        "rails(hub, link=xgmi, node=9, nic=xgmi)",
    )
    assert not list(forests(scenario_of("all_gather", 9216, switch, nodes, 18).case))


def test_a_network_that_looks_the_same_from_every_rank_has_trees_where_copies_pass_ranks_by_more_than_a_ring() -> None:
    rings = [[rank, (rank + step) % 10] for rank in range(10) for step in (1, 3)]
    two, one = (
        scenario_of("all_gather", 10240, fabric=f"edges(xgmi={links})", ranks=10) for links in (rings, rings[::2])
    )
    assert two.case.network.symmetric and one.case.network.symmetric
    assert list(forests(two.case)) and not list(forests(one.case))


def test_small_ones_are_copied_by_sms_with_flags_between_the_data() -> None:
    small = scenario_of("all_gather", rows=LEAST_BYTES // 2048 - 6).case
    assert {one.engine.kind for one in some(list(forests(small)))} == {EngineKind.SM}
    assert CopyProtocol.SIMPLE not in {one.tactics.protocol for one in forests(small)}
    explore = "explore one { engine sm(8), dma(4); protocol simple }"
    assert {one.engine.kind for one in forests(scenario_of("all_gather", explore=explore).case)} == {EngineKind.DMA}
    named = scenario_of("all_gather", explore="explore one { engine sm(8) }").case
    assert {one.engine.count for one in some(list(forests(named)))} == {8}

    best = max(forests(small), key=lambda one: one.chunks)
    assert all(one.engine == best.engine and one.tactics == best.tactics for one in some([*neighbours_of(small, best)]))


def test_small_sums_are_sent_straight_by_engines_with_one_kernel_for_all() -> None:
    case = scenario_of("reduce_scatter", rows=36).case
    by_dma = some([one for one in forests(case) if one.engine.kind is EngineKind.DMA])
    assert [(one.chunks, one.tactics.kernel) for one in by_dma] == [(6, Kernels.PERSISTENT)]
    assert {(root, *parents) for root, _, *parents in by_dma[0].trees} == {(rank,) * 7 for rank in range(6)}
    launched = OpChoice("serial", 6, by_dma[0].engine)
    times = [simulate_op(case, build_op_plan(case, one)).total_ticks for one in (by_dma[0], launched)]
    assert times[0] < times[1]
    assert carry_out(*job_of_op(case, build_op_plan(case, by_dma[0])), range(2)).exact
    few = scenario_of("reduce_scatter", rows=SM_BYTES.start // 2048 - 6).case
    assert not [one for one in forests(few) if one.engine.kind is EngineKind.DMA]


def test_sums_are_one_kernel_unless_the_file_has_kernels_launched() -> None:
    by_engines = "explore one { engine dma(4); kernel launched }"
    for collective, explore, kernel in (
        ("all_gather", "", Kernels.LAUNCHED),
        ("reduce_scatter", "", Kernels.PERSISTENT),
        ("reduce_scatter", by_engines, Kernels.LAUNCHED),
    ):
        tried = some(list(forests(scenario_of(collective, explore=explore).case)))
        by_dma = some([one for one in tried if one.engine.kind is EngineKind.DMA])
        assert {one.tactics.kernel for one in by_dma} == {kernel}
        assert {one.sums for one in by_dma} == {SUMS if collective != "all_gather" and explore else 1}


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "all_reduce"])
def test_trees_of_ranks_that_are_alike_bring_all_data(collective: str) -> None:
    """Two boxes of three at a switch each, with a link from each GPU to its like: one root stands for all six."""
    boxes = [[rank, 6 + rank // 3] for rank in range(6)]
    fabric = f"edges(switches=2, xgmi={[*boxes, [0, 3], [1, 4], [2, 5]]})"
    case = scenario_of(collective, rows=1536, fabric=fabric).case
    best = some([one for one in forests(case) if one.engine.kind is EngineKind.DMA])[0]

    assert len({tree[0] for tree in best.trees}) == 6 and len(best.trees) % 6 == 0
    assert carry_out(*job_of_op(case, build_op_plan(case, best)), range(2)).exact


def test_links_of_one_way_are_taken_that_way() -> None:
    """Two pairs that a link each way joins, at other ends: what is summed at all ranks comes down other ways."""
    fabric = "edges(xgmi=[[0, 1], 1 -> 2, [2, 3], 3 -> 0])"
    for collective in ("all_gather", "reduce_scatter", "broadcast", "all_reduce"):
        case = scenario_of(collective, rows=1024, fabric=fabric, ranks=4).case
        plan = build_op_plan(case, some(list(forests(case)))[0])
        sent = {
            (rank, (rank + step.peer) % 4)
            for rank in range(4)
            for step in plan.steps_of(rank)
            if isinstance(step, Transfer)
        }
        assert sent <= {(0, 1), (1, 0), (1, 2), (2, 3), (3, 2), (3, 0)}
        assert carry_out(*job_of_op(case, plan), range(2)).exact


@pytest.mark.quick(1)
@pytest.mark.parametrize("fabric", [f"edges(xgmi={CLIQUES})", "full_mesh(xgmi)"])
def test_a_broadcast_leaves_its_root_once(fabric: str) -> None:
    """Also where all ranks see the same network: each passes on the rows that the root sends to it."""
    case = scenario_of("broadcast", rows=96, fabric=fabric).case
    tried = some(list(forests(case)))
    assert all(tree[0] == 0 for one in tried for tree in one.trees)
    assert carry_out(*job_of_op(case, build_op_plan(case, tried[-1])), range(2)).exact
    case = scenario_of("broadcast", fabric=fabric).case
    fastest, named = (
        min(simulate_op(case, build_op_plan(case, one), unit_bytes=4096).total_ticks for one in choices)
        for choices in (
            [one for one in forests(case) if one.engine.kind is EngineKind.DMA][:3],
            [OpChoice(name, 24, EngineChoice(EngineKind.DMA, 8)) for name in ("direct", "ring", "double_tree")],
        )
    )
    assert fastest < 0.8 * named
