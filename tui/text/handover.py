"""What hands a schedule over to others: its plan in each format, its run, and the file of each runtime."""

import json
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, groupby
from typing import Any

from ...advisor.candidates.advice import Advice
from ...advisor.candidates.candidate import Candidate
from ...advisor.candidates.shortlist import packet_bytes
from ...advisor.how.code import code_lines
from ...advisor.how.how import How, RankSteps
from ...advisor.how.parts import PartHow, how_of_plan, intro_lines
from ...advisor.how.words import Reported, reported_steps
from ...advisor.policy.build import policy_table
from ...advisor.policy.cover import axis_of_scenario, size_of
from ...advisor.targets import SCENARIO_TARGETS, TARGETS, Refused, Target
from ...advisor.targets.base import Option, Options
from ...compiler.codes import Code
from ...compiler.ir import OpCase, OpPlan, Plan, Rejection, Scenario
from ...compiler.planfile.mscclpp.write import mscclpp_document
from ...compiler.planfile.syncopate.write import syncopate_text
from ...compiler.planfile.write import document_text, op_plan_document, plan_text
from ...compiler.planning.build import ScheduleError
from ...compiler.planning.knobs.library import reject_library_plan
from ...compiler.targets.triton import triton_text
from ...compiler.text.diagnostics import Report, Source, printable
from ...compiler.text.parsing.parse import check_size
from ...compiler.text.parsing.tokens import read_tokens
from ...simcore import ShownRun, run_of, simulate_op
from ...simcore.shown_run import op_times
from ..drawing.chrome_trace import chrome_trace
from ..drawing.timeline_svg import timeline_svg
from .door import bullet, columns, hanging, wrapped
from .ops import schedule_text

MOST_GROUPS = 8
"""Most groups of ranks whose steps are shown."""
MOST_LINES = 60
"""Most lines that are shown of one group, and of the pseudo-code."""


def how_text(parts: tuple[PartHow, ...], name: str) -> str:
    """Return what is taken for granted, numbered steps, and pseudo-code, of each part of a plan."""
    return "\n".join(plan_lines(parts, name))


def plan_lines(parts: tuple[PartHow, ...], name: str) -> Iterator[str]:
    """Yield the lines of ``how_text``, with the ``name`` of the schedule."""
    if len(parts) == 1:
        yield from how_lines(parts[0].how, name)
        return
    yield from wrapped(f"How to carry out {name}: {len(parts)} parts, issued in this order.")
    for number, reported in enumerate(parts, 1):
        yield ""
        waits = f"; it waits for {', and for '.join(reported.waits)}" if reported.waits else ""
        yield from wrapped(f"Part {number}, {reported.part.name}, {reported.label}, {reported.stream}{waits}.")
        yield from how_lines(reported.how, reported.name)


def how_lines(how: How, name: str) -> Iterator[str]:
    """Yield how one part is carried out, under the ``name`` of its schedule."""
    yield from wrapped(f"How to carry out {name}:")
    for sentence in intro_lines(how):
        yield from bullet("-", sentence)
    yield ""
    for number, reported in groupby(reported_steps(how), lambda line: line.group):
        if number == MOST_GROUPS:
            left = sum(len(group.ranks) for group in how.groups[MOST_GROUPS:])
            yield from wrapped(f"The steps of {left} more ranks are left out here; JSON has them.")
            break
        if len(how.groups) > 1:
            yield from wrapped(f"On {_ranks_text(how.groups[number])}:")
        yield from _limited([line for each in reported for line in _step_lines(each)])
    yield ""
    yield from wrapped("In pseudo-code, commands are queued at once and wait in their queues:")
    of_one = len(how.groups) > 1
    yield from _limited([line for each in code_lines(how, only_first=of_one) for line in _code_lines(each)])
    if of_one:
        yield from wrapped("The other ranks do their steps in the same way.")


def _ranks_text(group: RankSteps) -> str:
    ranks = ", ".join(map(str, group.ranks))
    return f"rank {ranks}" if len(group.ranks) == 1 else f"ranks r = {ranks}"


def _step_lines(reported: Reported) -> list[str]:
    indent = "  " + "  " * reported.number.count(".")
    first = f"{indent}{reported.number}{'' if '.' in reported.number else '.'} "
    return hanging(reported.text, len(first), first)


def _code_lines(line: str) -> list[str]:
    indent = len(line) - len(line.lstrip())
    return hanging(line.lstrip(), indent + 6, "  " + " " * indent) if len(line) + 2 > columns() else [f"  {line}"]


def _limited(lines: list[str]) -> Iterator[str]:
    yield from lines[:MOST_LINES]
    if len(lines) > MOST_LINES:
        yield f"  {len(lines) - MOST_LINES} more lines are left out here; JSON has all steps."


def plan_block(scenario: OpCase, schedule: OpPlan) -> str:
    """Return the plan in the language, under a comment with its expression."""
    # The name may be that of a file, and a comment is one line.
    name = free_name(named.name for named in scenario.schedules)
    return f"# {printable(schedule.expression)}\n{plan_text(scenario, schedule, name)}"


def is_too_long(text: str) -> bool:
    """Whether no file can hold the text."""
    report = Report()
    with report.trial():
        source = Source("plan", text)
        check_size(source, report)
        read_tokens(source, report)
    return report.has_errors


def free_name(taken: Iterable[str]) -> str:
    """A name that no schedule of the workload has, so that the plan can be pasted into its file."""
    names = set(taken)
    return next(name for number in count(1) if (name := f"plan_{number}") not in names)


def picked_lines(
    scenario: Scenario, candidate: Candidate, run: ShownRun | None, words: tuple[str, ...]
) -> Iterator[str]:
    """Yield how a schedule is carried out: its block, what each op does, and commands; ``words`` name the workload."""
    yield "y copies the name, m the block."
    yield ""
    yield from schedule_text(scenario, candidate).rstrip().splitlines()
    yield ""
    for op in op_times(run) if run is not None else ():
        how = op.span.schedule or "as usual"
        beside = f"; its copies run beside {op.beside_text}" if op.beside_text else ""
        yield from bullet("-", f"{op.name}, {op.span.label}: {how}{beside}")
    yield ""
    name = ("--schedule", candidate.expression)
    if not candidate.is_serial and candidate.joint not in scenario.schedules:
        yield "With the block in the file:"
    for what, command in (
        ("Simulate it, line by line", ("simulate", *words, *name)),
        ("Its trace and its drawing", ("simulate", *words, *name, "--trace", "run.json", "--svg", "run.svg")),
        ("Its plan", ("plan", *words, *name, "--format", "json", "-o", "plan.json")),
        ("All schedules as a page", ("report", *words, "-o", "report.html")),
    ):
        yield from wrapped(f"{what}:")
        yield f"  magus {shlex.join(command)}"


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


def _of_target(target: Target[Any], write: Callable[..., str]) -> Handover:
    """The file of a runtime."""
    name = target.name
    return Handover(name, target.about, f"{name}.txt", partial(write, target), target.options, of_advice=True)


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
    Handover("syncopate", "a CommPlan of Syncopate, in Python", "plan_syncopate.py", _written_out(syncopate_text)),
    *(_of_target(target, _rules) for target in TARGETS),
    *(_of_target(target, _times) for target in SCENARIO_TARGETS),
)
"""Plans and runs first, then the files of ``magus export`` for the size of the scenario."""
