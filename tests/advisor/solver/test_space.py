"""The space the solver states is the one that ``reject_choice`` and the limits of memory leave, no more and no less."""

import itertools
import subprocess
import sys
from dataclasses import replace
from threading import Event

import pytest
from ortools.sat.python import cp_model

from magus.advisor.solver import NoFeasibleSchedule, enumerate_space
from magus.advisor.solver.domains import domains_of, streams_of
from magus.advisor.solver.enumerate import explain
from magus.advisor.solver.memory import check_memory, resident_bytes
from magus.advisor.solver.model import Solutions
from magus.compiler import compile_text
from magus.compiler.ir import EngineChoice, EngineKind, Explore, Fabric, OpCase, OpChoice
from magus.compiler.planning.build import ScheduleError, build_op_plan, expression_of, reject_choice, template_named
from magus.compiler.planning.knobs.engine import ENGINE
from magus.compiler.planning.knobs.structure import CHUNKS, TEMPLATE
from magus.compiler.templates import ALL_TEMPLATES, Cut
from magus.compiler.verify.check import check_plan
from tests.helpers.marks import thinned
from tests.helpers.scenarios.fabrics import graph, rails, torus
from tests.helpers.scenarios.scenarios import (
    GIB,
    MIB,
    ag_gemm,
    exploring,
    full_mesh,
    gemm_rs,
    h100,
    lone_gather,
    lone_gemm,
    lone_scatter,
    mi300x,
)
from tests.helpers.some import some
from tests.helpers.work import calls_of

DMA, SM = EngineKind.DMA, EngineKind.SM
MANY = Explore.of(
    chunks=(1, 4, 7, 8, 12, 16, 20, 24, 40, 48, 56, 64, 96, 128, 192, 256, 1024, 4096),
    engine=tuple(EngineChoice(DMA, count) for count in (1, 7, 8, 14, 15))
    + tuple(EngineChoice(SM, count) for count in (1, 66, 67, 152, 153)),
)
SCENARIOS = [
    ag_gemm(8192, 28672, 8192),
    ag_gemm(384, 1024, 320),
    ag_gemm(64, 1024, 64),
    ag_gemm(96, 1152, 576, ranks=4),
    gemm_rs(8192, 8192, 28672),
    gemm_rs(1536, 1088, 2048, ranks=2, gpu=h100()),
    gemm_rs(48, 128, 512, gpu=h100()),
    lone_gather(512, 192),
    lone_scatter(512, 192, gpu=h100()),
    lone_gemm(256, 512, 1024),
]


def brute_force(scenario: OpCase) -> set[OpChoice]:
    domains, found = domains_of(scenario), set()
    chunks = {*domains[CHUNKS], scenario.num_ranks}
    for name, count, engine in itertools.product(domains[TEMPLATE], chunks, domains[ENGINE]):
        template = template_named(name)
        for streams in streams_of(template):
            choice = OpChoice(template.name, count, engine, streams)
            if reject_choice(scenario, choice) is None and is_sound(scenario, choice):
                found.add(choice)
    return found


def is_sound(scenario: OpCase, choice: OpChoice) -> bool:
    """Whether memory suffices, transfers fill lines, and the expression is the only one of this schedule."""
    template, moved, n = template_named(choice.template), scenario.shape.moved, scenario.num_ranks
    if template.name == "direct" and choice.chunks == n:
        return False  # that is serial
    staging = build_op_plan(scenario, choice).staging_bytes
    limit = scenario.explore.staging_limit_bytes
    if (limit is not None and staging > limit) or resident_bytes(scenario) + staging > scenario.gpu.hbm.capacity_bytes:
        return False
    if template.cut is Cut.SHARD:
        return choice.chunks == n
    requested = scenario.explore.values("chunks")
    return (
        moved is not None and moved.num_bytes // choice.chunks >= 128 and (not requested or choice.chunks in requested)
    )


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "explore",
    thinned([Explore(), MANY, replace(MANY, staging_limit_bytes=200 * MIB)], 3),
)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: f"{s.name}-{s.gpu.name}")
def test_enumerates_what_is_legal(scenario: OpCase, explore: Explore) -> None:
    scenario = exploring(scenario, explore)

    expected = brute_force(scenario)

    if not expected:
        with pytest.raises(NoFeasibleSchedule):
            enumerate_space(scenario)
        return
    space = enumerate_space(scenario)
    assert space.complete
    assert len(space.choices) == len(set(space.choices))
    assert set(space.choices) == expected


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS[:2], ids=["large", "small"])
def test_every_choice_is_a_schedule_without_faults(scenario: OpCase) -> None:
    for choice in some(enumerate_space(scenario).choices):
        assert check_plan(scenario, build_op_plan(scenario, choice)) == ()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: f"{s.name}-{s.gpu.name}")
def test_no_two_choices_have_one_expression(scenario: OpCase) -> None:
    choices = enumerate_space(scenario).choices

    assert len({expression_of(choice) for choice in choices}) == len(choices)


def test_order_is_by_template_chunks_engine_streams_and_the_same_for_every_seed() -> None:
    scenario = exploring(ag_gemm(8192, 28672, 8192), Explore.of(engine=(EngineChoice(SM, 16), EngineChoice(DMA, 7))))
    names = [template.name for template in ALL_TEMPLATES]

    choices = enumerate_space(scenario).choices

    keys = [(names.index(c.template), c.chunks, c.engine.kind is SM, c.engine.count, c.streams) for c in choices]
    assert keys == sorted(keys)
    assert all(enumerate_space(scenario, seed=seed).choices == choices for seed in (1, 2))


def test_serial_is_always_a_candidate() -> None:
    scenario = exploring(ag_gemm(8192, 28672, 8192), Explore.of(schedules=("uniform_fused_1d",), chunks=(64,)))

    templates = {choice.template for choice in enumerate_space(scenario).choices}

    assert templates == {"serial", "uniform_fused_1d"}


def test_a_lone_kernel_has_one_schedule() -> None:
    assert len(enumerate_space(lone_gemm(256, 256, 256)).choices) == 1


@pytest.mark.parametrize(
    ("num_ranks", "fabric", "tried"),
    [
        (64, rails(8), True),
        (64, torus(8, 8), True),
        (12, graph(*itertools.pairwise(range(12))), True),
        (32, graph(*itertools.pairwise(range(32))), False),
        (64, full_mesh(), False),
    ],
    ids=["nodes", "torus", "short chain", "long chain", "mesh"],
)
def test_algorithms_that_pass_on_are_tried_where_few_ranks_stand_for_all(
    num_ranks: int, fabric: Fabric, tried: bool
) -> None:
    scenario = ag_gemm(64 * num_ranks, 256, 256, ranks=num_ranks, fabric=fabric)
    found = {(choice.template, choice.algorithm) for choice in enumerate_space(scenario).choices}

    assert (("pipelined", "double_ring") in found) is tried
    assert ("serial", "") in found


def test_limit_keeps_a_part_and_says_so() -> None:
    scenario = ag_gemm(8192, 28672, 8192)
    everything = enumerate_space(scenario)

    part = enumerate_space(scenario, limit=5)

    assert len(part.choices) == 5 and not part.complete
    assert set(part.choices) < set(everything.choices)
    assert part == enumerate_space(scenario, limit=5)
    assert enumerate_space(scenario, limit=len(everything.choices)).complete
    with pytest.raises(ValueError, match="positive"):
        enumerate_space(scenario, limit=0)


def test_what_the_solver_raises_in_its_thread_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise MemoryError("on purpose")

    monkeypatch.setattr(cp_model.CpSolver, "solve", fails)
    with pytest.raises(MemoryError, match="on purpose"):
        enumerate_space(SCENARIOS[1], generated=False)
    with pytest.raises(MemoryError, match="on purpose"):
        explain(SCENARIOS[1])


def test_stops_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, began, stopped = ag_gemm(8192, 28672, 8192), Event(), Event()
    everything = enumerate_space(scenario)
    take, stop = Solutions.on_solution_callback, cp_model.CpSolver.stop_search

    def take_once_stopped(solutions: Solutions) -> None:
        began.set()
        assert stopped.wait(60)  # a quick solver would end before it is asked to
        take(solutions)

    def stop_search(solver: cp_model.CpSolver) -> None:
        stop(solver)
        stopped.set()

    monkeypatch.setattr(Solutions, "on_solution_callback", take_once_stopped)
    monkeypatch.setattr(cp_model.CpSolver, "stop_search", stop_search)
    space = enumerate_space(scenario, should_stop=began.is_set)

    assert set(space.choices) < set(everything.choices) and not space.complete


def test_work_of_an_enumeration_grows_with_the_choices() -> None:
    scenario = ag_gemm(8192, 28672, 8192)
    choices = enumerate_space(scenario).choices  # loads the solver

    assert calls_of(lambda: enumerate_space(scenario)) < 150 * len(choices)


@pytest.mark.parametrize(
    ("explore", "reasons"),
    [
        (Explore.of(staging_limit_bytes=MIB), ("staging <= 1 MiB: every schedule needs at least 112 MiB",)),
        (
            Explore.of(engine=(EngineChoice(DMA, 15),), staging_limit_bytes=200 * MIB),
            ("MI300X has 14 DMA engines; requested: dma(15)",),
        ),
        (
            Explore.of(engine=(EngineChoice(DMA, 20), EngineChoice(SM, 300))),
            (
                "MI300X has 14 DMA engines; requested: dma(20)",
                "at most 152 of MI300X's 304 SMs may copy; requested: sm(300)",
            ),
        ),
    ],
)
def test_says_why_nothing_is_feasible(explore: Explore, reasons: tuple[str, ...]) -> None:
    scenario = exploring(ag_gemm(8192, 28672, 8192), explore)

    with pytest.raises(NoFeasibleSchedule) as caught:
        enumerate_space(scenario)

    assert caught.value.reasons == reasons
    assert explain(scenario) == reasons


def test_says_when_memory_is_too_small() -> None:
    gpu = replace(mi300x(), hbm=replace(mi300x().hbm, capacity_bytes=GIB // 8))

    with pytest.raises(
        NoFeasibleSchedule, match=r"MI300X has 128 MiB of memory: tensors take 128 MiB a rank, and .* 112 MiB"
    ):
        enumerate_space(ag_gemm(8192, 28672, 8192, gpu=gpu))


def test_memory_of_a_rank_in_figures() -> None:
    """A shard of each input and the output; what crosses the fabric besides is staging."""
    assert resident_bytes(ag_gemm(8192, 28672, 8192)) == (16 + 56 + 56) * MIB
    assert resident_bytes(gemm_rs(8192, 8192, 28672)) == (56 + 56 + 16) * MIB
    assert resident_bytes(lone_gather(8192, 8192)) == resident_bytes(lone_scatter(8192, 8192)) == 144 * MIB
    assert resident_bytes(lone_gemm(1024, 1024, 1024)) == 6 * MIB


@pytest.mark.parametrize(
    ("explore", "template", "reasons"),
    [
        (
            Explore.of(chunks=(9, 10)),
            "uniform_fused_1d",
            ("chunks are 9 or 10", "chunks are a multiple of the 8 ranks"),
        ),
        (
            Explore.of(staging_limit_bytes=200 * MIB),
            "uniform_fused_2d",
            ("staging <= 200 MiB: uniform_fused_2d needs 224 MiB",),
        ),
        (
            Explore.of(chunks=(24, 48)),
            "hetero_fused_1d",
            ("chunks are 24 or 48", "the 1024 rows of a shard divide into equal chunks"),
        ),
        (
            Explore.of(chunks=(24,)),
            "uniform_fused_2d",
            ("chunks are 24", "the 8192 columns divide into equal chunks of a multiple of 64"),
        ),
        (Explore.of(chunks=(8,)), "uniform_fused_1d", ("chunks are 8", "uniform_fused_1d needs 16 chunks or more")),
    ],
)
def test_says_why_a_template_that_is_requested_for_is_absent(
    explore: Explore, template: str, reasons: tuple[str, ...]
) -> None:
    scenario = exploring(ag_gemm(8192, 28672, 8192), explore.asking("schedules", (template,)))

    space = enumerate_space(scenario)

    assert [(absence.template, absence.reasons) for absence in space.absent] == [(template, reasons)]


def test_a_template_of_another_pattern_and_chunks_below_a_line_are_explained() -> None:
    shard_p2p, hetero = template_named("shard_p2p"), template_named("hetero_fused_1d")
    tiny = exploring(ag_gemm(1024, 128, 32), Explore.of(chunks=(1024,)))

    assert explain(lone_gather(512, 512), shard_p2p) == (
        "all_gather is scheduled by serial, direct, ring, double_ring, halving_doubling, hierarchical, torus_tree, "
        "nvls and forest alone",
    )
    assert explain(tiny, hetero) == (
        "chunks are 1024",
        "a transfer moves a line of 128 B or more, a shard has 8 KiB",
    )
    assert explain(ag_gemm(1024, 128, 64), hetero) == ()


@pytest.mark.slow
def test_the_solver_is_loaded_at_the_first_call() -> None:
    code = (
        "import sys, magus.advisor.bounds.lower_bound; from magus.advisor.solver import enumerate_space; "
        "assert 'ortools' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", code], check=True)


HALF, MOST = "x = tensor bf16[8192, 4096]", "v = tensor bf16[4096, 4096]"  # 64 MiB and 32 MiB


@pytest.mark.parametrize(
    ("workload", "resident", "staging"),
    [
        (f"{HALF}; y = all_reduce(x)", 64 + 64, 56),
        (f"{HALF}; y = all_to_all(x)", 64 + 64, 0),
        (f"{HALF} shard rows; {MOST} shard cols; y = gemm(all_gather(x), v)", 8 + 4 + 8, 56),
        (f"{HALF} shard cols; {MOST} shard rows; y = reduce_scatter(gemm(x, v))", 8 + 4 + 8, 64 + 56),
        (f"{HALF} shard cols; {MOST} shard rows; y = all_reduce(gemm(x, v))", 8 + 4 + 64, 64 + 56),
        (f"{HALF}; {MOST} shard cols; y = gemm(all_to_all(x), v)", 64 + 4 + 8, 56),
        (f"{HALF}; {MOST} shard cols; y = gemm(x, v); {HALF.replace('x', 'u')} shard rows; g = all_gather(u)", 148, 0),
        (f"{HALF}; {MOST} shard cols; y = gemm(x, v); {HALF.replace('x', 'u')}; t = all_to_all(u)", 204, 0),
        (f"{HALF}; {HALF.replace('x', 'u')}; y = add(x, u)", 3 * 64, 0),
    ],
)
def test_memory_of_every_pattern_that_a_file_can_ask_for(workload: str, resident: int, staging: int) -> None:
    """Inputs, results, and what is in between, each once."""
    system = 'use "nvidia/h100"\nsystem s { gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }'
    scenario = compile_text(f"{system}\nworkload w on s {{ {workload} }}").scenario("w").case
    schedule = build_op_plan(scenario, OpChoice("serial", 8, EngineChoice(EngineKind.SM, 32)))

    assert (resident_bytes(scenario), schedule.staging_bytes) == (resident * MIB, staging * MIB)
    needed = (resident + staging) * MIB
    for capacity, fits in ((needed, True), (needed - 1, False)):
        gpu = replace(scenario.gpu, hbm=replace(scenario.gpu.hbm, capacity_bytes=capacity))
        small = replace(scenario, system=replace(scenario.system, gpu=gpu))
        if fits:
            check_memory(small, schedule)
            continue
        with pytest.raises(ScheduleError, match=r"iB a rank, 1 B more than \w+ has"):
            check_memory(small, schedule)
