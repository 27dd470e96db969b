"""``magus plan``: a schedule as a plan, in the language, as JSON or as a Triton kernel; the JSON Schema of plans."""

import json
from dataclasses import dataclass
from pathlib import Path

from ....compiler.ir import GraphScenario, Scenario, Schedule
from ....compiler.planfile.json_schema import plan_schema
from ....compiler.planfile.to_json import document_text, plan_document
from ....compiler.planning.build import ScheduleError
from ....compiler.planning.knobs.library import reject_library_plan
from ....compiler.resolve.schedules.from_text import resolve_schedule
from ....compiler.targets.kernel_rewrite import rewrite_kernel
from ....compiler.targets.kernel_tuning import Config
from ....compiler.targets.triton import triton_text
from ...exit_codes import Exit
from ...text.door import say
from ...text.plan_block import is_too_long, plan_block
from ..console import deliver, show
from ..graphs.plan import print_graph_plan, print_graph_schema
from ..inputs import ScenarioInput, source_of
from ..running import run_command


@dataclass(frozen=True, slots=True)
class TritonOptions:
    """Which ``schedule``, the tables of which ``rank`` (None: of all), and the file of a kernel to rewrite, if any.

    ``config`` chooses one of the configurations of its autotuning.
    """

    schedule: str | None
    rank: int | None = None
    kernel: Path | None = None
    config: Config | None = None


def print_steps(source: ScenarioInput, *, schedule: str | None, out: Path | None) -> Exit:
    """Write how to carry ``schedule`` out to ``out`` or stdout; None is as in ``print_plan``."""
    from ....advisor.how.how import how_of
    from ...text.how import how_text

    def action() -> Exit:
        scenario = source.scenario()
        chosen = resolve_schedule(scenario, schedule, show)
        return deliver(how_text(how_of(scenario, chosen)) + "\n", out, f"the steps of {chosen.expression}")

    return run_command(action)


def print_plan(
    source: ScenarioInput, *, schedule: str | None, as_json: bool, layers: int | None, out: Path | None
) -> Exit:
    """Write the plan of ``schedule`` to ``out`` or stdout; None is the first that the file declares, else serial.

    Of layers that repeat ``layers`` are written out as JSON; see ``print_graph_plan``.
    """

    from ....advisor.answer.extrapolation import counts_read

    def action() -> Exit:
        scenario = source.subject()
        if isinstance(scenario, GraphScenario):
            return print_graph_plan(scenario, schedule=schedule, as_json=as_json, layers=layers, out=out)
        chosen = _written_out(scenario, schedule)
        for note in counts_read(scenario, chosen):
            say(f"magus: {note}")
        text = document_text(plan_document(scenario, chosen)) if as_json else plan_block(scenario, chosen)
        if not as_json and is_too_long(text):
            say("magus: the plan has more words than a file of the language may have; use --format json")
        return deliver(text, out, chosen.expression)

    return run_command(action)


def print_triton(source: ScenarioInput, options: TritonOptions, out: Path | None) -> Exit:
    """Write a Triton kernel that follows the plan of a schedule, with its tables and copies, to ``out`` or stdout."""

    def action() -> Exit:
        scenario = source.scenario()
        if options.rank is not None and options.rank >= scenario.num_ranks:
            say(f"magus: --rank {options.rank}: the ranks are 0 to {scenario.num_ranks - 1}")
            return Exit.USAGE
        chosen = _written_out(scenario, options.schedule)
        kernel = None if options.kernel is None else rewrite_kernel(source_of(options.kernel), options.config)
        text = triton_text(scenario, chosen, options.rank, kernel)
        if kernel is not None and scenario.workload.pattern.consumes:
            show(kernel.by_row)
        return deliver(text, out, chosen.expression)

    return run_command(action)


def print_schema(source: ScenarioInput | None, out: Path | None) -> Exit:
    """Write the JSON Schema of plans, or of those of ``source`` if that is a graph, to ``out`` or stdout."""

    def action() -> Exit:
        if source is not None and isinstance(source.subject(), GraphScenario):
            return print_graph_schema(out)
        return deliver(json.dumps(plan_schema(), indent=2) + "\n", out, "the schema of plans")

    return run_command(action)


def _written_out(scenario: Scenario, text: str | None) -> Schedule:
    """The schedule that is meant, by default the first that the file declares, else serial."""
    chosen = resolve_schedule(scenario, text, show)
    if chosen.engine.by_library:
        raise ScheduleError(reject_library_plan(chosen.engine))
    return chosen
