"""Other ways to carry out a schedule: each a change of its own, and a search over them that the simulator confirms."""

from dataclasses import fields, replace
from functools import cache
from itertools import product

import pytest

from magus.advisor.bespoke.cp_sat import uniform_choices
from magus.advisor.bespoke.neighbours import (
    INFEASIBLE,
    PlanEstimator,
    best_first_search,
    single_knob_changes,
    start_points,
)
from magus.advisor.bespoke.stage import why_bespoke
from magus.advisor.bounds.lower_bound import lower_bound
from magus.compiler.ir import (
    CopyProtocol,
    EngineChoice,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    Explore,
    Kernels,
    OpCase,
    OpChoice,
    Pattern,
    Wait,
)
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.simcore import simulate_op
from tests.helpers.marks import first
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of

DMA3 = EngineChoice(EngineKind.DMA, 3)
ENGINES = (DMA3, EngineChoice(EngineKind.DMA, 6, EngineMode.PRELAUNCHED), EngineChoice(EngineKind.SM, 16))
PATTERNS = (Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR)


def ring(pattern: Pattern) -> OpCase:
    return scenario_of(pattern, SYSTEMS[2], 4, 4096, 2048, 1024)


def test_every_way_changes_one_knob_or_two_that_belong_together() -> None:
    """Chunks with their waves, and a persistent kernel with the one stream that sums have behind it."""
    base = OpChoice("pipelined", 16, DMA3, 2, algorithm="double_ring", waves=4, sums=2)

    ways = [way for way in single_knob_changes(ring(Pattern.GEMM_RS), base, ENGINES) if way != base]

    changed = [
        {each.name for each in fields(OpChoice) if getattr(way, each.name) != getattr(base, each.name)} for way in ways
    ]
    assert all(len(knobs) == 1 or knobs in ({"chunks", "waves"}, {"tactics", "sums"}) for knobs in changed)
    assert {knob for knobs in changed for knob in knobs} == {
        *("chunks", "engine", "streams", "algorithm", "waves", "sums", "tactics")
    }


def test_sums_in_several_streams_are_reached_from_a_persistent_kernel() -> None:
    tactics = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)
    base = OpChoice("pipelined", 16, DMA3, 2, tactics, algorithm="double_ring", waves=4)

    ways = [way for way in single_knob_changes(ring(Pattern.GEMM_RS), base, ENGINES) if way.sums > 1]

    assert ways and {way.tactics for way in ways} == {ExecutionOptions()}


def test_parts_keep_their_sizes_and_copies_by_engines_lose_their_protocol() -> None:
    parts, ll = ((1024, 0), (0, 1024)), ExecutionOptions(protocol=CopyProtocol.LL)
    base = OpChoice("bespoke", 4, ENGINES[2], 2, ll, parts=parts)

    ways = list(single_knob_changes(ring(Pattern.AG_GEMM), base, ENGINES))

    assert {way.parts for way in ways} == {parts} and {way.chunks for way in ways} == {4}
    assert {way.tactics.protocol for way in ways if way.engine.kind is EngineKind.DMA} == {CopyProtocol.SIMPLE}


def test_what_a_file_asks_for_is_kept_to() -> None:
    one = ring(Pattern.AG_GEMM)
    requested = replace(one, explore=Explore.of(kernel=(Kernels.LAUNCHED,), streams=(2,), algorithm=("ring",)))

    ways = list(single_knob_changes(requested, OpChoice("pipelined", 16, DMA3, 2, algorithm="ring"), ENGINES))

    assert {way.tactics.kernel for way in ways} == {Kernels.LAUNCHED}
    assert {way.streams for way in ways} == {2} and {way.algorithm for way in ways} == {"ring"}


def test_a_search_starts_from_each_template_and_algorithm() -> None:
    choices = [OpChoice("serial", 4, DMA3), OpChoice("serial", 4, ENGINES[2]), OpChoice("pipelined", 8, DMA3)]
    choices += [OpChoice("pipelined", 16, DMA3, algorithm="double_ring"), OpChoice("bespoke", 4, DMA3, parts=((1, 1),))]
    choices += [OpChoice("shard_p2p", 4, DMA3), OpChoice("shard_p2p", 4, ENGINES[2])]

    assert start_points(choices) == [choices[2], choices[3], choices[5]], "serial is what the others are compared with"


@pytest.mark.parametrize("pattern", first(PATTERNS, 1))
def test_on_a_ring_joined_waves_win_and_stay_above_the_bound(pattern: Pattern) -> None:
    """The best ways are faster than the best chunk count, as simulated, and so are the best with joined waves.

    Of those that are estimated alike one is looked at: more streams than kernels side by side change nothing.
    """
    one = ring(pattern)
    evaluate, bound = PlanEstimator(one, 10_000), lower_bound(one).ticks
    choices = [choice for choice in uniform_choices(one, 8) if choice.algorithm == "double_ring"]
    start = min(choices, key=evaluate.ticks)

    ways = best_first_search(evaluate, start, 200, ENGINES)

    @cache
    def ticks(choice: OpChoice) -> int:
        return simulate_op(one, build_op_plan(one, choice), unit_bytes=16384).makespan_ticks

    alike = {round(evaluate.ticks(way)): way for way in reversed(ways)}
    best = [alike[estimate] for estimate in sorted(alike)[:5]]
    joined = [ticks(way) for way in best if way.waves > 1]
    assert all(reject_choice(one, way) is None for way in ways)
    assert min(map(ticks, best)) < 0.97 * ticks(start)
    assert all(bound <= ticks(way) for way in best)
    assert joined and min(joined) < 0.97 * ticks(start)


def test_a_search_without_a_budget_finds_where_it_began() -> None:
    one, start = ring(Pattern.AG_GEMM), OpChoice("pipelined", 8, DMA3)

    assert best_first_search(PlanEstimator(one, 100), start, 0, ENGINES) == [start]


def test_why_names_the_knobs() -> None:
    template = OpChoice("pipelined", 16, DMA3, algorithm="double_ring")
    found = replace(template, streams=2, waves=4, sums=4, engine=ENGINES[1])

    said = dict(why_bespoke(ring(Pattern.GEMM_RS), found, template, lambda each: 1.0 if each == found else 1.5))

    assert said == dict.fromkeys(
        ("kernels side by side", "several waves in a kernel", "sums side by side", f"engine {ENGINES[1]}"), 0.5
    )


def test_persistent_kernels_that_may_hold_the_sms_of_copies_are_not_searched() -> None:
    """The first of these does not finish: its kernel has the SMs that the copies wait for."""
    one, shared = scenario_of(Pattern.AG_GEMM, SYSTEMS[0], 2, 2048, 1024, 512), EngineMode.SHARED
    evaluate = PlanEstimator(one, 9)
    persistent, parts = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL), ((512, 512), (512, 512))
    cuts = ((), (256, 256))

    for mode, tactics in product((shared, EngineMode.OWN), (persistent, ExecutionOptions())):
        engine = EngineChoice(EngineKind.SM, 16, mode)
        choice = OpChoice("bespoke", 2, engine, 2, tactics, parts=parts, slices=cuts)
        assert reject_choice(one, choice) is None
        assert (evaluate.ticks(choice) == INFEASIBLE) is (mode is shared and tactics is persistent)
