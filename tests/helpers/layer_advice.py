"""Answers about several ops that are made by hand, with the times of nobody."""

from magus.advisor.candidates.advice import Advice, Confidence, Timing
from magus.advisor.candidates.candidate import Candidate, ScheduleOrigin, joint_candidate
from magus.compiler.ir import Scenario, Schedule
from magus.compiler.resolve.expect.expectation import Verdict
from magus.compiler.resolve.schedules.from_text import SERIAL


def serial_candidate(ticks: int) -> Candidate:
    """No overlap."""
    return joint_candidate(SERIAL, ScheduleOrigin.SERIAL, "no overlap", ticks)


def advice_by_hand(scenario: Scenario, schedule: Schedule, ticks: int, serial_ticks: int) -> Advice:
    """The answer that recommends ``schedule``, which is declared if the file has it."""
    serial = serial_candidate(serial_ticks)
    origin = ScheduleOrigin.DECLARED if schedule in scenario.schedules else ScheduleOrigin.SEARCHED
    best = serial if schedule == SERIAL else joint_candidate(schedule, origin, "by hand", ticks)
    return Advice(
        scenario=scenario,
        verdict=Verdict.SERIAL if best is serial else Verdict.OVERLAP,
        recommended=best,
        serial=serial,
        speedup=serial.best_us / best.best_us,
        candidates=tuple(dict.fromkeys((best, serial))),
        num_feasible=None,
        bound=None,
        result=None,
        serial_result=None,
        ties=(),
        confidence=Confidence.MEDIUM,
        confidence_reason="by hand",
        reasons=(),
        marks=(),
        timing=Timing(0.0, 0.0, 0.0, 0.0),
        searched=2,
    )
