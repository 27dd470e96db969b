"""Which schedule is the baseline: one with unusual options must lead clearly."""

from magus.advisor.candidates.candidate import MIN_LEAD, Candidate, ScheduleOrigin, baseline_of, by_time
from magus.compiler.ir import CopyProtocol, EngineChoice, EngineKind, ExecutionOptions, OpChoice, Pattern
from magus.compiler.planning.build import build_op_plan
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of

GEMM = scenario_of(Pattern.AG_GEMM, SYSTEMS[0], 4, 256, 256, 256)
USUAL = OpChoice("serial", 4, EngineChoice(EngineKind.SM, 16))
FLAGGED = OpChoice("serial", 4, USUAL.engine, tactics=ExecutionOptions(protocol=CopyProtocol.LL128))


def timed(choice: OpChoice, ticks: int) -> Candidate:
    schedule = build_op_plan(GEMM, choice)
    return Candidate(
        schedule.expression, choice, schedule, ScheduleOrigin.SERIAL, simulated_ticks=ticks, unit_bytes=128
    )


def test_one_with_unusual_options_leads_clearly_or_is_not_the_baseline() -> None:
    whole, lead = 10**6, round(MIN_LEAD * 10**6)

    assert baseline_of(by_time([timed(USUAL, whole), timed(FLAGGED, whole - lead // 2)])).choice == USUAL
    assert baseline_of(by_time([timed(USUAL, whole), timed(FLAGGED, whole - 2 * lead)])).choice == FLAGGED
    assert baseline_of([timed(FLAGGED, whole)]).choice == FLAGGED
