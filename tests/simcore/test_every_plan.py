"""Plans of every kind, drawn at random: exact on every core, the same folded, and moving what the plan says."""

import random
from dataclasses import replace

import numpy as np
import pytest

from magus.compiler.ir import CopyProtocol, EngineKind, OpCase, OpPlan, Pattern
from magus.simcore.cores.engine import Core, run
from magus.simcore.figures.load_buckets import traffic_at, traffic_of
from magus.simcore.fold.refine import Classes, detect
from magus.simcore.fold.run import expand, quotient
from magus.simcore.lower.budget import cost_of
from magus.simcore.lower.plan import plan_of
from magus.simcore.lower.steps import LoweredPart
from magus.simcore.lower.variability import perturbation_of
from magus.simcore.program.program import OpKind, Program, RunOutcome, TrafficClass
from magus.simcore.simulate import Case
from tests.helpers.marks import thinned
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.drawn_programs import draw_plan, draw_variability
from tests.helpers.oracle.lowering import lower_op
from tests.helpers.oracle.oracle import Oracle
from tests.helpers.some import some

LINKS = ("link", "up", "down", "left", "right")
MAX_LINE_HOPS = 20_000


def drawn(pattern: Pattern, count: int) -> list[tuple[random.Random, OpCase, OpPlan]]:
    """Plans of one pattern."""
    sources = [random.Random(f"{pattern.name} {index}") for index in range(count)]
    return [(rng, *draw_plan(rng, pattern)) for rng in sources]


def line_hops(program: Program) -> int:
    """Units times servers on their way; of a poll, in one round."""
    return int((program.flow_units * program.flow_num_hops).sum())


@pytest.mark.quick(4)
@pytest.mark.parametrize("pattern", thinned(Pattern, 2), ids=lambda pattern: pattern.name)
def test_all_cores_agree_with_the_oracle(pattern: Pattern) -> None:
    compared = 0
    for rng, scenario, schedule in drawn(pattern, 6):
        if rng.random() < 0.3:
            variability = draw_variability(rng, scenario.num_ranks)
            scenario = replace(scenario, system=replace(scenario.system, variability=variability))
        case = Case(scenario.system, plan_of(scenario, schedule), perturbation_of(scenario.system, 1))
        program = case.lowered(rng.choice((2048, 4096)), fold=False).program
        if line_hops(program) > MAX_LINE_HOPS:
            continue
        oracle = Oracle(program).run()
        for core in Core:
            assert differences(program, run(program, core=core), oracle) == [], (core, schedule.expression)
        classes = detect(program)
        if isinstance(classes, Classes):
            folded = quotient(program, classes)
            assert differences(program, expand(folded, run(folded.program)), oracle) == [], schedule.expression
        compared += 1

    assert compared >= 4


@pytest.mark.quick(2)
@pytest.mark.parametrize("pattern", thinned(Pattern, 2), ids=lambda pattern: pattern.name)
def test_one_rank_of_a_symmetric_plan_has_the_times_and_the_traffic_of_each(pattern: Pattern) -> None:
    for _, scenario, schedule in some(drawn(pattern, 6)):
        one, every = (lower_op(scenario, schedule, unit_bytes=4096, fold=fold) for fold in (True, False))
        if one.program.folded and line_hops(every.program) <= MAX_LINE_HOPS:
            of_one, of_every = run(one.program), run(every.program)
            assert of_one.makespan_ticks == of_every.makespan_ticks
            assert of_one.outcome is of_every.outcome
            if of_one.outcome is RunOutcome.DONE:
                assert traffic_of([one], of_one) == traffic_of([every], of_every)


def passed(lowered: LoweredPart, prefixes: tuple[str, ...]) -> int:
    """Bytes of data of all ranks that pass servers whose names begin so."""
    program = lowered.program
    names = np.array([name.startswith(prefixes) for name in program.server_names])
    data = program.flow_traffic[program.hop_flow] != TrafficClass.FLAGS
    at = data & names[program.hop_server // program.ranks_simulated]
    return int(program.flow_units[program.hop_flow[at]].sum()) * program.unit_bytes


@pytest.mark.quick(2)
@pytest.mark.parametrize("pattern", thinned(Pattern, 2), ids=lambda pattern: pattern.name)
def test_flows_carry_the_traffic_of_the_plan(pattern: Pattern) -> None:
    for _, scenario, schedule in some(drawn(pattern, 12)):
        line = scenario.gpu.line_bytes
        lowered = lower_op(scenario, schedule, unit_bytes=line, fold=False)
        traffic = [
            traffic_at(lowered, [ops for ops in lowered.steps if ops.rank == rank])
            for rank in range(scenario.num_ranks)
        ]
        workers = int((lowered.program.op_kind == OpKind.TRANSFER).sum())
        flags_between = schedule.engine.kind is EngineKind.SM and schedule.tactics.protocol is CopyProtocol.LL128
        # Hits and bytes of kernels are rounded to lines once a step, flags of LL128 once a worker.
        rounded = line * (2 * len(lowered.steps) + 4 * workers * flags_between)
        for prefixes, planned in (
            (("hbm",), sum(each.hbm_read_bytes + each.hbm_write_bytes for each in traffic)),
            (("l2",), sum(each.l2_bytes for each in traffic)),
            (LINKS, sum(each.link_bytes for each in traffic)),
        ):
            assert abs(passed(lowered, prefixes) - planned) <= rounded, (schedule.expression, prefixes)


@pytest.mark.quick(4)
@pytest.mark.parametrize("pattern", Pattern, ids=lambda pattern: pattern.name)
def test_the_cost_of_a_run_is_known_before(pattern: Pattern) -> None:
    """To a factor of two, lines in parts of a few lines left out."""
    for _, scenario, schedule in some(drawn(pattern, 12)):
        line = scenario.gpu.line_bytes
        program = lower_op(scenario, schedule, unit_bytes=line, fold=False).program
        cost = cost_of(scenario, schedule, range(scenario.num_ranks))
        if line_hops(program) > 10 * program.num_flows:
            assert 0.5 < cost.line_hops(line) / line_hops(program) < 2, schedule.expression
