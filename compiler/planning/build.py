"""From a template and its parameters, or a plan written out, to the Schedule that lowering takes."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import chain

from ..codes import Code
from ..ir import COLUMN_STEP as COLUMN_STEP
from ..ir import (
    Choice,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    NamedSchedule,
    Plan,
    Rejection,
    Scenario,
    Schedule,
    Step,
    TileGroup,
)
from ..templates import BASELINE, BY_NAME, Template, TemplateInput
from . import knobs
from .expression import OPTIONS, expression_of
from .knobs import Knob, Rule, ScheduleRequest
from .knobs.engine import ENGINE
from .knobs.library import reject_library_plan
from .staging import slices_inner as slices_inner
from .staging import staging_bytes as staging_bytes
from .staging import staging_of_steps

_EXECUTION = {ENGINE.word, *OPTIONS}


class ScheduleError(ValueError):
    """A schedule that cannot run on its scenario, and why."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection)
        self.rejection = rejection


def template_named(name: str) -> Template:
    """The template of that name.

    Raises
    ------
    ScheduleError
        If there is none.
    """
    if name not in BY_NAME:
        known = f"templates are {', '.join(BY_NAME)}"
        raise ScheduleError(Rejection(Code.MGS505, f"there is no template '{name}'", known))
    return BY_NAME[name]


def build_schedule(scenario: Scenario, body: Choice | Plan, name: str = "") -> Schedule:
    """The chunk plan for ``body`` on ``scenario``; ``name`` is the identity of a plan written out.

    Raises
    ------
    ScheduleError
        If the choice is illegal here; see ``reject_choice``.
    """
    if isinstance(body, Plan):
        unfit = reject_execution(scenario, body.engine, body.tactics)
        if unfit is not None:
            raise ScheduleError(unfit)
        sms, ranks = compute_sms(scenario, body.engine, body.overlaps), body.by_rank or (body.steps,)
        sliced = any(isinstance(step, TileGroup) and step.accumulate for step in chain(*ranks))
        staging = staging_of_steps(scenario, ranks, slices_inner=sliced)
        return Schedule(name, body.steps, body.engine, sms, staging, body.overrides, body.tactics, body.by_rank)
    return next(build_schedules(scenario, (body,)))


def build_schedules(scenario: Scenario, choices: Iterable[Choice]) -> Iterator[Schedule]:
    """Yield the chunk plan for each of ``choices``; those that differ in their engines alone mostly share its steps.

    Raises
    ------
    ScheduleError
        If a choice is illegal here; see ``reject_choice``.
    """
    written: dict[tuple[str, TemplateInput], tuple[tuple[Step, ...], tuple[tuple[Step, ...], ...]]] = {}
    for choice in choices:
        template, request = template_named(choice.template), ScheduleRequest(scenario, choice)
        unfit = _first_rejection(request, all_rules())
        if unfit is not None:
            raise ScheduleError(unfit)
        problem = replace(request.problem, engine=EngineKind.DMA) if template.any_engine else request.problem
        plan = template.name, problem
        if plan not in written:
            written[plan] = template.write(problem)
        steps, by_rank = written[plan]
        sliced = bool(choice.slices) or slices_inner(scenario, template)
        yield Schedule(
            expression_of(choice),
            steps,
            choice.engine,
            compute_sms(scenario, choice.engine, template.overlaps),
            staging_of_steps(scenario, by_rank or (steps,), slices_inner=sliced),
            tactics=choice.tactics,
            by_rank=by_rank,
        )


def all_rules() -> tuple[Rule, ...]:
    """Every rule of what is feasible, in the order in which they are asked: those that read the fewest knobs first."""
    return _rules_of(knobs.KNOBS)


@cache  # a search asks the rules of thousands of choices
def _rules_of(known: tuple[Knob, ...]) -> tuple[Rule, ...]:
    return tuple(sorted((rule for knob in known for rule in knob.rules), key=lambda rule: len(rule.knobs)))


def reject_choice(scenario: Scenario, choice: Choice) -> Rejection | None:
    """Why ``choice`` cannot run on ``scenario``, None if it can.

    Raises
    ------
    ScheduleError
        If there is no such template.
    """
    template_named(choice.template)
    return _first_rejection(ScheduleRequest(scenario, choice), all_rules())


def reject_execution(scenario: Scenario, engine: EngineChoice, tactics: ExecutionOptions) -> Rejection | None:
    """Why the system cannot carry out a plan with ``tactics`` and ``engine``, None if it can."""
    if engine.by_library:
        return reject_library_plan(engine)
    choice = Choice(BASELINE.name, scenario.num_ranks, engine, tactics=tactics)
    of_machine = (rule for rule in all_rules() if _EXECUTION.issuperset(rule.knobs))
    return _first_rejection(ScheduleRequest(scenario, choice), of_machine)


def _first_rejection(request: ScheduleRequest, rules: Iterable[Rule]) -> Rejection | None:
    return next((rejection for rule in rules if (rejection := rule.reject(request)) is not None), None)


def compute_sms(scenario: Scenario, engine: EngineChoice, overlaps: bool) -> int:
    """SMs left to kernels; those that copies share are left to them."""
    taken = engine.count if overlaps and not engine.leaves_all_sms else 0
    return scenario.gpu.sms - taken


def declared(scenario: Scenario, named: NamedSchedule) -> Schedule:
    """The Schedule a file declares under a name."""
    return build_schedule(scenario, named.body, named.name)
