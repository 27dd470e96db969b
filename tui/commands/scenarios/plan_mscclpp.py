"""``magus plan --format mscclpp``: a schedule of a lone collective as an execution plan of MSCCL++."""

import json
from pathlib import Path

from ....advisor.candidates.shortlist import packet_bytes
from ....compiler.codes import Code
from ....compiler.ir import TICKS_PER_US, JsonObject, Scenario, Schedule
from ....compiler.planfile.file import plan_in_text
from ....compiler.planfile.mscclpp.write import mscclpp_document
from ....compiler.resolve.schedules.from_text import resolve_schedule
from ....compiler.text.diagnostics import CompileError, Diagnostic, Severity
from ....compiler.text.quantities import us_text
from ....compiler.text.source import Source, Span
from ....simcore import RunOutcome, simulate_op
from ....simcore.lower.at_once import all_blocks_at_once
from ...exit_codes import Exit
from ...text.door import put_text
from ..console import save, show
from ..inputs import ScenarioInput
from ..running import run_command

SAME = 0.02
"""Share of the time of a schedule by which its plan may differ untold."""

_KEEPS = "as many engines for each peer, and chunks that they divide, keep the time"
_BY_BLOCK = "MSCCL++ exchanges and sums block by block; a kernel written for it does so with all blocks at once"


def print_mscclpp(source: ScenarioInput, *, schedule: str | None, out: Path | None) -> Exit:
    """Write the execution plan of ``schedule`` to ``out`` or stdout; None is the first that the file declares.

    The plan is read back and simulated; under ``magus`` stand both times, in us, and a difference is told on stderr.
    """

    def action() -> Exit:
        scenario = source.case("a plan of MSCCL++")
        chosen = resolve_schedule(scenario, schedule, show)
        document = mscclpp_document(scenario, chosen)
        times, said = _read_back(scenario, chosen, json.dumps(document))
        document["magus"] = {**document["magus"], **times}
        show(said)
        text = json.dumps(document, indent=1) + "\n"
        if out is not None:
            return save(out, text, f"{out}: {chosen.expression}")
        put_text(text)
        return Exit.DONE

    return run_command(action)


def _read_back(scenario: Scenario, schedule: Schedule, text: str) -> tuple[JsonObject, list[Diagnostic]]:
    """Return the times of a schedule and of its plan, None where one does not end, and what is to be said of them."""
    try:
        again = plan_in_text(scenario, text, "the plan")
    except CompileError as error:
        why = error.diagnostics[0].message
        said = _warning(schedule, f"it is not read back: {why}", _KEEPS)
        return {"us": _us(scenario, schedule), "read_back_us": None}, [said]
    before, after = _us(scenario, schedule), _us(scenario, again)
    times: JsonObject = {"us": before, "read_back_us": after}
    if before is None or after is None or abs(after / before - 1) <= SAME:
        return times, []
    engines = "" if again.engine == schedule.engine else f", and has {again.engine} for {schedule.engine}"
    message = f"read back, the plan takes {us_text(after)} and its schedule {us_text(before)}"
    hint = _BY_BLOCK if all_blocks_at_once(scenario, schedule) != schedule else _KEEPS
    return times, [_warning(schedule, f"{message} ({after / before - 1:+.1%}){engines}", hint)]


def _us(scenario: Scenario, schedule: Schedule) -> float | None:
    result = simulate_op(scenario, schedule, unit_bytes=packet_bytes(scenario.gpu))
    return result.makespan_ticks / TICKS_PER_US if result.outcome is RunOutcome.DONE else None


def _warning(schedule: Schedule, message: str, hint: str) -> Diagnostic:
    text = schedule.expression
    return Diagnostic(Code.MGS561, message, Span(Source("--schedule", text), 0, len(text)), hint, Severity.WARNING)
