"""``magus plan``: a schedule in steps, in the language, as JSON, for MSCCL++ or Triton; and the JSON Schema."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ....advisor.candidates.shortlist import packet_bytes
from ....compiler.codes import Code
from ....compiler.ir import TICKS_PER_US, JsonObject, OpCase, OpPlan, Plan, Rejection, Scenario
from ....compiler.planfile.file import plan_in_text
from ....compiler.planfile.mscclpp.write import mscclpp_document
from ....compiler.planfile.syncopate.write import syncopate_text
from ....compiler.planfile.write import document_text, op_plan_document, plan_document
from ....compiler.planning.build import ScheduleError, schedule_block
from ....compiler.planning.knobs.library import reject_library_plan
from ....compiler.resolve.schedules.from_text import choice_named, is_plan_file, plan_named, resolve_schedule
from ....compiler.targets.kernel_rewrite import rewrite_kernel
from ....compiler.targets.kernel_tuning import Config
from ....compiler.targets.triton import triton_text
from ....compiler.text.diagnostics import CompileError, Diagnostic, Severity, Source, Span, printable
from ....compiler.text.units import us_text
from ....simcore import RunOutcome, simulate_op
from ....simcore.lower.one_kernel import all_blocks_at_once
from ....simcore.simulate_layers import FEWEST_LAYERS
from ...text.door import Exit, say
from ...text.handover import free_name, is_too_long, plan_block
from ..inputs import ScenarioInput, deliver, show, source_of
from ..running import command


@command
def print_steps(source: ScenarioInput, *, schedule: str | None, out: Path | None) -> Exit:
    """Write how to carry ``schedule`` out to ``out`` or stdout; None is as in ``print_plan``."""
    from ....advisor.how.parts import how_of_plan
    from ...text.handover import how_text

    question = source.scenario()
    if question.only_case is None:
        plan = plan_named(question, schedule).first_layer()
    else:
        chosen = resolve_schedule(question.only_case, schedule, show)
        plan = Plan.of_one(question.only_case.shape.output, question.only_case.shape, chosen)
    text = how_text(how_of_plan(question.system, plan), plan.expression)
    return deliver(f"{text}\n", out, f"the steps of {plan.expression}")


@command
def print_plan(
    source: ScenarioInput, *, schedule: str | None, as_json: bool, layers: int | None, out: Path | None
) -> Exit:
    """Write the plan of ``schedule`` to ``out`` or stdout; None is the first that the file declares, else serial.

    Of layers that repeat ``layers`` are written out as JSON; None: as many as ``simulate`` runs first. Without
    ``as_json`` the schedule of several ops is written as the block that declares it.
    """

    from ....advisor.answer.extrapolation import counts_read

    question = source.scenario()
    scenario = question.only_case
    if scenario is None:
        if as_json:
            return _deliver_plan(question, schedule, layers, out)
        return _deliver_block(question, schedule, out)
    chosen = _written_out(scenario, schedule, in_language=not as_json)
    for note in counts_read(scenario, chosen):
        say(f"magus: {note}")
    text = document_text(op_plan_document(scenario, chosen)) if as_json else plan_block(scenario, chosen)
    if not as_json and is_too_long(text):
        say("magus: the plan has more words than a file of the language may have; use --format json")
    return deliver(text, out, chosen.expression)


@command
def print_triton(
    source: ScenarioInput,
    schedule: str | None,
    *,
    rank: int | None,
    kernel_file: Path | None,
    config: Config | None,
    out: Path | None,
) -> Exit:
    """Write a Triton kernel that follows the plan of a schedule, with its tables and copies, to ``out`` or stdout.

    The tables are those of ``rank``, None: of all. The kernel is that of ``kernel_file``, rewritten, if there is one,
    with ``config`` of the configurations of its autotuning.
    """
    scenario = source.case("a Triton kernel")
    if rank is not None and rank >= scenario.num_ranks:
        say(f"magus: --rank {rank}: the ranks are 0 to {scenario.num_ranks - 1}")
        return Exit.USAGE
    chosen = _written_out(scenario, schedule)
    kernel = None
    if kernel_file is not None:
        file, _, name = str(kernel_file).partition("::")
        kernel = rewrite_kernel(source_of(Path(file)), config, name, chosen.tactics.tile)
    text = triton_text(scenario, chosen, rank, kernel)
    if kernel is not None and scenario.shape.pattern.consumes:
        show(kernel.by_row)
    return deliver(text, out, chosen.expression)


@command
def print_schema(out: Path | None) -> Exit:
    """Write the JSON Schema of plans to ``out`` or stdout."""
    from ....compiler.planfile.forms import plan_schema

    return deliver(json.dumps(plan_schema(), indent=2) + "\n", out, "the schema of plans")


def _deliver_plan(scenario: Scenario, schedule: str | None, layers: int | None, out: Path | None) -> Exit:
    plan = plan_named(scenario, schedule, min(layers or FEWEST_LAYERS, scenario.num_layers))
    for part in plan.parts:
        _check_written_out(part.schedule)
    text = document_text(plan_document(scenario.system, scenario.workload, plan))
    return deliver(text, out, plan.expression)


def _deliver_block(scenario: Scenario, schedule: str | None, out: Path | None) -> Exit:
    if schedule is not None and is_plan_file(scenario, schedule):
        say("magus: a plan written out is no schedule of the language; use --format json")
        return Exit.USAGE
    chosen = choice_named(scenario, schedule)
    named = replace(chosen, name=free_name(choice.name for choice in scenario.schedules))
    text = f"# {printable(chosen.name)}\n{schedule_block(named, scenario.name)}"
    return deliver(text, out, chosen.name)


def _written_out(scenario: OpCase, text: str | None, *, in_language: bool = False) -> OpPlan:
    """The schedule that is meant, by default the first that the file declares, else serial."""
    chosen = resolve_schedule(scenario, text, show)
    _check_written_out(chosen, in_language=in_language)
    return chosen


def _check_written_out(chosen: OpPlan, *, in_language: bool = False) -> None:
    """Refuse what the library moves in one call, which has no steps, and kernels, which stand in the file."""
    engine, expression = chosen.engine, chosen.expression
    if engine.kernel is not None and not in_language:
        message = f"{engine.kernel.name} is a kernel of the file, and other programs know no work-groups"
        is_template = f"engine={engine}" in expression
        hint = (
            "leave --format out, or say engine=sm(16)" if is_template else "leave --format out, or say --format mscclpp"
        )
        raise ScheduleError(Rejection(Code.MGS411, message, hint))
    if engine.by_library:
        raise ScheduleError(reject_library_plan(engine))


SAME = 0.02
"""Share of the time of a schedule by which its plan may differ untold."""

_KEEPS = "as many engines for each peer, and chunks that they divide, keep the time"
_BY_WAVE = "kernels of Syncopate take chunks wave by wave, as those of hetero_fused_1d and shard_p2p do"
_BY_BLOCK = "there blocks move one by one; a kernel written for a collective does so with all of them at once"


def print_mscclpp(source: ScenarioInput, *, schedule: str | None, out: Path | None) -> Exit:
    """Write the execution plan of ``schedule`` to ``out`` or stdout; None is the first that the file declares."""

    def text(scenario: OpCase, chosen: OpPlan, times: JsonObject) -> str:
        document = mscclpp_document(scenario, chosen)
        document["magus"] = {**document["magus"], **times}
        return json.dumps(document, indent=1) + "\n"

    return _print_read_back(source, ("a plan of MSCCL++", "the plan", _KEEPS), schedule, out, text)


def print_syncopate(source: ScenarioInput, *, schedule: str | None, out: Path | None) -> Exit:
    """Write the CommPlan of ``schedule``, in Python, as ``print_mscclpp``."""
    return _print_read_back(source, ("a CommPlan", "plan.py", _BY_WAVE), schedule, out, syncopate_text)


@command
def _print_read_back(
    source: ScenarioInput,
    words: tuple[str, str, str],
    schedule: str | None,
    out: Path | None,
    write: Callable[[OpCase, OpPlan, JsonObject], str],
) -> Exit:
    """Write a plan for another program; ``words`` name it in errors and when it is read, and say what keeps its time.

    It is read back and simulated; both times stand in the file, in us, and a difference is told on stderr.
    """
    scenario = source.case(words[0])
    chosen = resolve_schedule(scenario, schedule, show)
    times, said = _read_back(scenario, chosen, write(scenario, chosen, {}), words[1:])
    show(said)
    text = write(scenario, chosen, times)
    return deliver(text, out, chosen.expression)


def _read_back(
    scenario: OpCase, schedule: OpPlan, text: str, words: Sequence[str]
) -> tuple[JsonObject, list[Diagnostic]]:
    """Return the times of a schedule and of its plan, None where one does not end, and what is to be said of them."""
    try:
        again = plan_in_text(scenario, text, words[0])
    except CompileError as error:
        why = error.diagnostics[0].message
        said = _warning(schedule, f"it is not read back: {why}", words[1])
        return {"us": _us(scenario, schedule), "read_back_us": None}, [said]
    before, after = _us(scenario, schedule), _us(scenario, again)
    times: JsonObject = {"us": before, "read_back_us": after}
    if before is None or after is None or abs(after / before - 1) <= SAME:
        return times, []
    engines = "" if again.engine == schedule.engine else f", and has {again.engine} for {schedule.engine}"
    message = f"read back, the plan takes {us_text(after)} and its schedule {us_text(before)}"
    hint = _BY_BLOCK if all_blocks_at_once(scenario, schedule) != schedule else words[1]
    return times, [_warning(schedule, f"{message} ({after / before - 1:+.1%}){engines}", hint)]


def _us(scenario: OpCase, schedule: OpPlan) -> float | None:
    result = simulate_op(scenario, schedule, unit_bytes=packet_bytes(scenario.gpu))
    return result.makespan_ticks / TICKS_PER_US if result.outcome is RunOutcome.DONE else None


def _warning(schedule: OpPlan, message: str, hint: str) -> Diagnostic:
    text = schedule.expression
    return Diagnostic(Code.MGS561, message, Span(Source("--schedule", text), 0, len(text)), hint, Severity.WARNING)
