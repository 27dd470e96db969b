"""The generator writes down the set that the solver states, over scenarios and questions of many kinds."""

from dataclasses import replace
from functools import cache
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.advisor.solver import NoFeasibleSchedule, Space, enumerate_space
from magus.advisor.solver.domains import domains_of, knobs_of
from magus.advisor.solver.enumerate import generate
from magus.compiler import compile_text
from magus.compiler.ir import Direction, EngineChoice, EngineKind, EngineMode, Explore, OpCase, OpChoice
from magus.compiler.planning.build import build_op_plan, expression_of, reject_choice
from magus.compiler.resolve.schedules.explore import opened
from magus.compiler.resolve.schedules.from_text import read_choice
from magus.compiler.templates import TEMPLATES
from magus.compiler.verify.check import check_plan
from magus.simcore import simulate_op
from tests.helpers.marks import examples, thinned
from tests.helpers.scenarios.scenarios import MIB, ag_gemm, exploring
from tests.helpers.some import some

HEAD = """use "nvidia/h100"
use "amd/mi300x"
link wide extends nvlink { protocols simple, ll, ll128 }
gpu Waker extends H100 { sync { monitor_wake 100 ns; monitor_entries 64; graph_launch 500 ns } }
system waker { gpus 4 x Waker; fabric switch(nvswitch, link=wide) }
system pair { gpus 2 x Waker; fabric switch(nvswitch, link=wide) }
system mesh { gpus 8 x MI300X; fabric full_mesh(xgmi) }
system round { gpus 4 x H100; fabric ring(nvlink) }
"""
X, W = "x = tensor bf16[1024, 1024]", "w = tensor bf16[1024, 2048] shard cols"
WORKLOADS = {
    "AG+GEMM": f"{X} shard rows; {W}; y = gemm(all_gather(x), w)",
    "GEMM+RS": f"{X} shard cols; w = tensor bf16[1024, 2048] shard rows; y = reduce_scatter(gemm(x, w))",
    "GEMM+AR": f"{X} shard cols; w = tensor bf16[1024, 2048] shard rows; y = all_reduce(gemm(x, w))",
    "A2A+GEMM": f"{X}; {W}; y = gemm(all_to_all(x), w)",
    "beside": f"{X} shard rows; {W}; v = tensor bf16[512, 1024]; y = gemm(v, w); g = all_gather(x)",
    "gather": f"{X} shard rows; y = all_gather(x)",
    "sum": f"{X}; y = all_reduce(x)",
    "gemm": f"{X}; {W}; y = gemm(x, w)",
    "add": f"{X}; u = tensor bf16[1024, 1024]; y = add(x, u)",
}
UNEVEN = f"{X}; {W}; y = gemm(all_to_all(x, rows=[128, 512, 64, 320]), w)"
ALL = opened(Explore())
ENGINES = (
    *(EngineChoice(EngineKind.DMA, count) for count in (1, 3, 7)),
    EngineChoice(EngineKind.DMA, 3, EngineMode.PRELAUNCHED),
    *(EngineChoice(EngineKind.SM, count) for count in (8, 200)),
    EngineChoice(EngineKind.SM, 16, EngineMode.SHARED),
)


@cache
def scenario_of(system: str, workload: str) -> OpCase:
    text = UNEVEN if workload == "uneven" else WORKLOADS[workload]
    return compile_text(f"{HEAD}workload w on {system} {{ {text} }}\n").scenario("w").case


KEYS = (
    *((system, workload) for system in ("waker", "pair", "mesh", "round") for workload in WORKLOADS),
    ("waker", "uneven"),
)
"""Systems and workloads: who collects tests compiles none of them."""


def few_of(values: tuple[object, ...]) -> st.SearchStrategy[tuple[object, ...]]:
    """A few of the values of a knob, or nothing said."""
    return st.lists(st.sampled_from(values), unique=True, max_size=len(values)).map(tuple)


scenarios = st.sampled_from(KEYS).map(lambda key: scenario_of(*key))
explores = st.builds(
    Explore.of,
    schedules=few_of((*(template.name for template in TEMPLATES), "pipelined", "ring", "bulk")),
    chunks=few_of((1, 8, 12, 16, 32, 64, 256, 4096)),
    engine=few_of(ENGINES),
    staging_limit_bytes=st.sampled_from([None, None, MIB, MIB * 7 // 4, 3 * MIB]),
    **{word: few_of(ALL.values(word)) for word in ("transfer", "protocol", "kernel", "wait", "per", "launch", "order")},
    depth=few_of((1, 2, 4, 8)),
    streams=few_of((1, 2, 4, 64)),
    algorithm=few_of(ALL.values("algorithm")),
    dominance=st.booleans(),
)


def space_or_none(scenario: OpCase, *, generated: bool) -> Space | None:
    try:
        return enumerate_space(scenario, generated=generated)
    except NoFeasibleSchedule as error:
        assert error.reasons
        return None


@given(scenario=scenarios, explore=explores)
@examples(20, deep=500)
def test_the_same_set_as_the_solver(scenario: OpCase, explore: Explore) -> None:
    requested = exploring(scenario, explore)

    solved, generated = space_or_none(requested, generated=False), space_or_none(requested, generated=True)

    assert (solved is None) == (generated is None)
    if solved is not None and generated is not None:
        assert solved.choices == generated.choices
        assert (solved.size, solved.assumed, solved.absent) == (generated.size, generated.assumed, generated.absent)


@pytest.mark.quick(1)
@pytest.mark.parametrize("key", thinned(KEYS, 2), ids="-".join)
def test_with_all_knobs_open(key: tuple[str, str]) -> None:
    scenario = exploring(scenario_of(*key), replace(ALL.asking("engine", ENGINES[1:4]), dominance=False))

    solved, generated = enumerate_space(scenario, generated=False), enumerate_space(scenario, generated=True)

    assert solved.choices == generated.choices and solved.complete


@given(data=st.data(), scenario=scenarios, explore=explores)
@examples(25)
def test_what_is_in_the_space_is_legal_and_without_faults(
    data: st.DataObject, scenario: OpCase, explore: Explore
) -> None:
    requested = exploring(scenario, explore)
    space = space_or_none(requested, generated=True)
    if space is None:
        return

    choice = data.draw(st.sampled_from(space.choices))
    schedule = build_op_plan(requested, choice)

    assert check_plan(requested, schedule) == ()
    assert read_choice(requested, expression_of(choice)) == choice
    assert explore.staging_limit_bytes is None or schedule.staging_bytes <= explore.staging_limit_bytes


@pytest.mark.slow
@pytest.mark.parametrize("key", [("waker", "AG+GEMM"), ("waker", "uneven"), ("pair", "GEMM+RS")], ids="-".join)
def test_nothing_that_is_legal_is_missing(key: tuple[str, str]) -> None:
    """Every combination of values that ``reject_choice`` allows builds the plan of one that is in the space."""
    explore = ALL.asking("chunks", (8, 16)).asking("engine", ENGINES[1:2])
    scenario = exploring(scenario_of(*key), replace(explore, dominance=False))
    domains = domains_of(scenario)
    knobs, plans = knobs_of(scenario, domains), set()
    for choice in enumerate_space(scenario).choices:
        schedule = build_op_plan(scenario, choice)
        plans.add((choice.template, schedule.steps, schedule.by_rank, schedule.tactics))

    for code in some(Random(0).sample(range(knobs.num_codes), 2000)):
        choice = knobs.choice_of(code)
        requested = choice.chunks in (8, 16) and (choice.template != "serial" or choice.chunks == scenario.num_ranks)
        if requested and reject_choice(scenario, choice) is None:
            schedule = build_op_plan(scenario, choice)
            assert (choice.template, schedule.steps, schedule.by_rank, schedule.tactics) in plans, choice


@pytest.mark.parametrize("key", [("waker", "AG+GEMM"), ("mesh", "GEMM+RS"), ("waker", "GEMM+AR")], ids="-".join)
def test_pipelined_and_direct_is_another_name_of_hetero_fused_1d(key: tuple[str, str]) -> None:
    scenario, names = scenario_of(*key), ("hetero_fused_1d", "pipelined")
    engine, chunks = EngineChoice(EngineKind.DMA, 3), 4 * scenario.num_ranks
    fused, direct = OpChoice(names[0], chunks, engine), OpChoice(names[1], chunks, engine, algorithm="direct")

    alone = enumerate_space(exploring(scenario, Explore.of(schedules=names[1:], chunks=(chunks,), engine=(engine,))))
    both = enumerate_space(exploring(scenario, Explore.of(schedules=names, chunks=(chunks,), engine=(engine,))))

    times = [simulate_op(scenario, build_op_plan(scenario, each), unit_bytes=4096) for each in (fused, direct)]
    assert times[0].makespan_ticks == times[1].makespan_ticks
    assert direct in alone.choices and fused in both.choices and direct not in both.choices
    assert any(choice.algorithm for choice in both.choices), "the others are there"


def test_codes_are_sorted_and_each_is_there_once() -> None:
    scenario = exploring(scenario_of("waker", "AG+GEMM"), ALL)
    codes = generate(scenario, domains_of(scenario)).tolist()

    assert codes == sorted(set(codes))


def test_what_was_found_is_kept_when_it_is_stopped() -> None:
    scenario = exploring(
        ag_gemm(8192, 28672, 8192), Explore.of(transfer=tuple(Direction), chunks=tuple(range(8, 513, 8)))
    )
    requested: list[int] = []

    def should_stop() -> bool:
        requested.append(1)
        return len(requested) > 40

    whole = enumerate_space(scenario, generated=True)
    part = enumerate_space(scenario, generated=True, should_stop=should_stop)

    assert 0 < len(part.choices) < len(whole.choices)
    assert part.size is None and whole.size == len(whole.choices)
    assert set(part.choices) <= set(whole.choices)


def test_the_baseline_stays_whatever_algorithm_is_requested_for() -> None:
    scenario = exploring(ag_gemm(8192, 28672, 8192), Explore.of(algorithm=("double_tree",)))

    for generated in (False, True):
        found = enumerate_space(scenario, generated=generated).choices
        assert any(choice.template == "serial" and not choice.algorithm for choice in found)
