"""What hands a schedule over to others: its plan in each format, its run, and the file of each runtime. One list."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...advisor.candidates.advice import Advice
from ...advisor.candidates.shortlist import packet_bytes
from ...advisor.how.parts import how_of_plan
from ...advisor.policy.build import policy_table
from ...advisor.policy.cover import axis_of_scenario, size_of
from ...advisor.targets import SCENARIO_TARGETS, TARGETS, Refused, Target
from ...advisor.targets.base import Option, Options
from ...compiler.codes import Code
from ...compiler.ir import OpCase, OpPlan, Plan, Rejection
from ...compiler.planfile.mscclpp.write import mscclpp_document
from ...compiler.planfile.write import document_text, op_plan_document
from ...compiler.planning.build import ScheduleError
from ...compiler.planning.knobs.library import reject_library_plan
from ...compiler.targets.triton import triton_text
from ...simcore import ShownRun, run_of, simulate_op
from ..drawing.chrome_trace import chrome_trace
from ..drawing.timeline_svg import timeline_svg
from .how import how_text, plan_block


@dataclass(frozen=True, slots=True)
class Handover:
    """One way to hand a schedule over: ``file`` is the name of the file that is offered, ``about`` what it is.

    ``text`` takes the advice, the schedule that is picked and values of the ``options``; it raises ``ScheduleError`` or
    ``Refused`` where the format cannot say what the schedule does. ``of_advice`` is whether the file is about the
    recommended schedule, whatever is picked.
    """

    name: str
    about: str
    file: str
    text: Callable[[Advice, OpPlan, Options], str]
    options: tuple[Option, ...] = ()
    of_advice: bool = False


def _written_out(text: Callable[[OpCase, OpPlan], str]) -> Callable[[Advice, OpPlan, Options], str]:
    """A format of plans: what the library moves in one call has none."""

    def write(advice: Advice, schedule: OpPlan, given: Options) -> str:
        if schedule.engine.by_library:
            raise ScheduleError(reject_library_plan(schedule.engine))
        return text(advice.case, schedule)

    return write


def _json(scenario: OpCase, schedule: OpPlan) -> str:
    return document_text(op_plan_document(scenario, schedule))


def _mscclpp(scenario: OpCase, schedule: OpPlan) -> str:
    return json.dumps(mscclpp_document(scenario, schedule), indent=1) + "\n"


def _steps(advice: Advice, schedule: OpPlan, given: Options) -> str:
    plan = Plan.of_one(advice.case.shape.output, advice.case.shape, schedule)
    return how_text(how_of_plan(advice.scenario.system, plan), schedule.expression) + "\n"


def _drawn(text: Callable[[ShownRun], str]) -> Callable[[Advice, OpPlan, Options], str]:
    """A picture of a run: that of the answer if there is one, else one in packets."""

    def write(advice: Advice, schedule: OpPlan, given: Options) -> str:
        runs = (advice.result, advice.serial_result)
        known = next((run for run in runs if run is not None and run.schedule.expression == schedule.expression), None)
        unit_bytes = packet_bytes(advice.case.gpu)
        result = known or simulate_op(advice.case, schedule, unit_bytes=unit_bytes)
        return text(run_of(advice.case, result))

    return write


def _rules(target: Target[Any], advice: Advice, schedule: OpPlan, given: Options) -> str:
    """The rule for the size of the scenario: the recommended schedule."""
    scenario = advice.case
    axis = axis_of_scenario(scenario)
    size = None if axis is None else size_of(scenario.shape, axis.field)
    if axis is None or size is None:
        hint = "a table is about one size: the rows of one GEMM, or the bytes of one collective"
        raise Refused(Rejection(Code.MGS520, "this workload has no size that varies alone", hint))
    simulated = advice.recommended.simulated_ticks is not None
    return target.text(policy_table(axis, [size], lambda _: [lambda: advice], simulated=simulated), given)


def _times(target: Target[Any], advice: Advice, schedule: OpPlan, given: Options) -> str:
    return target.text([advice.case], given)


PLAN_JSON = Handover("json", "the plan as JSON", "plan.json", _written_out(_json))
PLAN_MGS = Handover("mgs", "the plan in the language of Magus", "plan.mgs", _written_out(plan_block))

HANDOVERS: tuple[Handover, ...] = (
    PLAN_JSON,
    PLAN_MGS,
    Handover("steps", "the steps in words and pseudo-code", "steps.txt", _steps),
    Handover("trace", "its run for Perfetto", "run.json", _drawn(lambda run: chrome_trace(run).text)),
    Handover("svg", "its run as a drawing", "run.svg", _drawn(timeline_svg)),
    Handover("triton", "a GEMM in Triton that follows the plan", "plan_triton.py", _written_out(triton_text)),
    Handover("mscclpp", "an execution plan of MSCCL++", "plan_mscclpp.json", _written_out(_mscclpp)),
    *(
        Handover(
            target.name, target.about, f"{target.name}.txt", partial(_rules, target), target.options, of_advice=True
        )
        for target in TARGETS
    ),
    *(
        Handover(
            target.name, target.about, f"{target.name}.txt", partial(_times, target), target.options, of_advice=True
        )
        for target in SCENARIO_TARGETS
    ),
)
"""Plans and runs first, then the files of ``magus export`` for the size of the scenario."""
