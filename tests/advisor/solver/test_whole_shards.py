"""Trees of whole shards for small tensors: exact plans, the best of all trees of few ranks, faster than packings."""

from itertools import permutations, product

import pytest

from magus.advisor.candidates.forests import forests
from magus.advisor.solver import whole_shards as module
from magus.advisor.solver.whole_shards import MOST_RANKS, whole_shards
from magus.compiler import compile_text
from magus.compiler.ir import CopyProtocol, EngineChoice, EngineKind, ExecutionOptions, OpCase, OpChoice, Pattern
from magus.compiler.planning.build import build_op_plan
from magus.runtime import carry_out
from magus.runtime.run import job_of_op
from magus.simcore import simulate_op
from tests.helpers.some import some

SMS, MOVED = 32, ("all_gather", "broadcast")
FABRICS = {
    "a line": (3, "edges(nvlink=[[0, 1]], slow=[[1, 2]])"),
    "a ring of one way": (3, "edges(nvlink=[0 -> 1, 1 -> 2, 2 -> 0])"),
    "four with slow links": (4, "edges(slow=[[0, 1], [2, 3]], nvlink=[[1, 2]])"),
    "cliques of five and three": (
        8,
        "edges(nvlink=[[0, 1], [0, 2], [0, 3], [0, 4], [1, 2], [1, 3], [1, 4], [2, 3], [2, 4], [3, 4], [5, 6], [5, 7],"
        " [6, 7]], slow=[[4, 5]])",
    ),
    "behind a switch": (5, "switch(nvswitch, link=nvlink)"),
}


def case_of(name: str, collective: str, num_bytes: int = 1 << 16) -> OpCase:
    ranks, fabric = FABRICS[name]
    layout, rows = " shard rows" if collective == "all_gather" else "", num_bytes // 256 // ranks * ranks
    return (
        compile_text(f"""use "nvidia/h100"
link slow extends nvlink {{ bandwidth 64 GB/s; achieved 50 GB/s; latency 1.5 us }}
system box {{ gpus {ranks} x H100; fabric {fabric} }}
workload one on box {{ x = tensor bf16[{rows}, 128]{layout}; y = {collective}(x) }}
""")
        .scenario()
        .case
    )


def choice_of(case: OpCase) -> OpChoice:
    tactics = ExecutionOptions(protocol=CopyProtocol.LL128)
    (trees,) = whole_shards(case, SMS)
    return OpChoice("forest", case.num_ranks, EngineChoice(EngineKind.SM, SMS), tactics=tactics, trees=trees)


@pytest.mark.parametrize(("name", "collective"), [*product(FABRICS, MOVED)])
def test_plans_bring_all_data_and_are_the_same_each_time(name: str, collective: str) -> None:
    case = case_of(name, collective)
    choice = choice_of(case)
    roots = [0] * case.num_ranks if collective == "broadcast" else list(range(case.num_ranks))
    assert [tree[0] for tree in choice.trees] == roots
    assert carry_out(*job_of_op(case, build_op_plan(case, choice)), range(2)).exact
    whole_shards.cache_clear()
    assert choice_of(case) == choice


@pytest.mark.parametrize(("name", "collective"), [*product(["a line", "a ring of one way"], MOVED)])
def test_of_three_ranks_no_trees_are_faster_in_its_schedule(name: str, collective: str) -> None:
    """There are three trees of each root: all sets of three are timed."""
    case = case_of(name, collective)
    copies = module._Copies(case, case.shape.moved.num_bytes // 3 if case.shape.moved else 0, SMS)
    roots = (0, 0, 0) if case.shape.pattern is Pattern.BROADCAST else (0, 1, 2)

    def trees_of(root: int) -> list[tuple[int, ...]]:
        found = [tuple([root] * 3)]
        for near, far in permutations({0, 1, 2} - {root}):
            found.append(tuple({root: root, near: root, far: near}[rank] for rank in range(3)))
        return found

    every = [copies.cost(trees) for trees in product(*map(trees_of, roots))]
    (found,) = whole_shards(case, SMS)
    assert len(every) == 27 and min(every) < max(every)
    assert copies.cost([tree[2:] for tree in found]) == min(every)


@pytest.mark.parametrize("collective", MOVED)
def test_its_schedule_is_near_the_simulation(collective: str) -> None:
    """The launch is the same for all."""
    case = case_of("cliques of five and three", collective)
    choice = choice_of(case)
    copies = module._Copies(case, 1 << 13, SMS)
    counted = case.gpu.launch.kernel_ticks + copies.cost([tree[2:] for tree in choice.trees]) / (1 + module.MEAN)
    simulated = simulate_op(case, build_op_plan(case, choice), unit_bytes=case.gpu.line_bytes).total_ticks
    assert 0.8 < counted / simulated < 1.1


def test_a_broadcast_is_faster_than_down_packings_and_by_name() -> None:
    """Each rank passes on a shard: a root that sends all rows to several ranks would hold its SMs for each copy."""
    case = case_of("cliques of five and three", "broadcast")
    tried = some(list(forests(case)))
    whole = {count: whole_shards(case, count)[0] for count in (16, 32)}
    assert {one.engine.count for one in tried if one.trees == whole[16]} == {16}
    ours = choice_of(case)
    packed = next(one for one in tried if one.trees not in whole.values() and one.engine == ours.engine)
    named = OpChoice("direct", 8, ours.engine, tactics=ours.tactics)
    times = [
        simulate_op(case, build_op_plan(case, one), unit_bytes=case.gpu.line_bytes).total_ticks
        for one in (ours, packed, named)
    ]
    assert ours in tried and 1.2 * times[0] < min(times[1:])


@pytest.mark.parametrize("collective", ["reduce_scatter", "all_reduce", "all_to_all"])
def test_sums_and_exchanges_have_none(collective: str) -> None:
    assert not whole_shards(case_of("four with slow links", collective), SMS)


def test_large_tensors_and_many_ranks_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of("cliques of five and three", "all_gather", 1 << 20)
    assert case.num_ranks == MOST_RANKS and whole_shards(case, SMS)[0] not in [one.trees for one in forests(case)]
    monkeypatch.setattr(module, "MOST_RANKS", 7)
    whole_shards.cache_clear()
    assert not whole_shards(case, SMS)
    whole_shards.cache_clear()
