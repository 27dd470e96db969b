"""The runs of an answer that pictures and pages draw."""

from ...advisor.answer.answer import run_of_candidate
from ...advisor.candidates.advice import Advice
from ...advisor.candidates.shortlist import packet_bytes
from ...advisor.layers.declared import simulated_candidate
from ...compiler.ir import never
from ...simcore import RunOutcome, ShownRun, run_of, simulate_op


def drawn_run(advice: Advice) -> ShownRun | None:
    """Return the run of the recommended schedule, in packets if it was not simulated; None if it does not end."""
    scenario, best = advice.scenario, advice.recommended
    if best.several is not None:
        return run_of_candidate(
            scenario, best if best.result is not None else simulated_candidate(scenario, best, never)
        )
    result = advice.result or simulate_op(advice.case, best.schedule, unit_bytes=packet_bytes(scenario.gpu))
    return run_of(advice.case, result) if result.outcome is RunOutcome.DONE else None


def baseline_run(advice: Advice) -> ShownRun | None:
    """Return the run of the baseline, None if it was not simulated, or not finely."""
    if advice.serial.several is not None:
        return run_of_candidate(advice.scenario, advice.serial)
    return None if advice.serial_result is None else run_of(advice.case, advice.serial_result)
