"""From a template and its knobs, or a plan written out, to an OpPlan; and schedules as text."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from itertools import chain, groupby
from typing import Any

from ..codes import Code
from ..ir import COLUMN_STEP as COLUMN_STEP
from ..ir import (
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    HandOff,
    Kernels,
    NamedSchedule,
    OpCase,
    OpChoice,
    OpMode,
    OpPlan,
    Pattern,
    RejectedError,
    Rejection,
    Schedule,
    Step,
    TileGroup,
    WrittenPlan,
    even_groups,
)
from ..templates import BASELINE, BY_NAME, Template, TemplateInput
from ..templates.bespoke import parts_in_words
from ..text.diagnostics import listing
from . import knobs
from .knobs import KNOBS, Knob, Rule, ScheduleRequest
from .knobs.base import SizeValues, value_text
from .knobs.engine import ENGINE
from .knobs.execution import COLUMNS, KERNEL, PARTS, SLICES, TREES, USUAL_WAIT, WAIT
from .knobs.library import reject_library_plan
from .knobs.structure import CHUNKS, STREAMS, TEMPLATE
from .staging import slices_inner as slices_inner
from .staging import staging_bytes as staging_bytes
from .staging import staging_of_steps

OPTIONS: Mapping[str, Knob] = {knob.word: knob for knob in KNOBS if knob.option}


def options_from(given: Mapping[str, Any]) -> ExecutionOptions:
    """Execution options from words and the sides of a tile; what is not said is usual, a persistent kernel polls."""
    return options_of({OPTIONS[word]: OPTIONS[word].value_of(said) for word, said in given.items()})


def options_of(given: Mapping[Knob, Any]) -> ExecutionOptions:
    """The same from values."""
    wait = USUAL_WAIT[given.get(KERNEL, KERNEL.usual)]
    return ExecutionOptions(**{knob.field: value for knob, value in {WAIT: wait, **given}.items()})


def values_of(options: ExecutionOptions) -> dict[str, Any]:
    """The value of each option, by the word of the option."""
    return {word: getattr(options, knob.field) for word, knob in OPTIONS.items()}


def non_default_options(options: ExecutionOptions) -> tuple[tuple[str, str], ...]:
    """(word, value) of everything that is not usual, in the order of the canonical text."""
    usual = {word: knob.usual for word, knob in OPTIONS.items()} | {WAIT.word: USUAL_WAIT[options.kernel]}
    return tuple((word, value_text(value)) for word, value in values_of(options).items() if value != usual[word])


def expression_of(choice: OpChoice) -> str:
    """``uniform_fused_1d(chunks=64, engine=dma(7))``; parameters a template does not have are left out.

    So is every other parameter at its usual value, but for the engine, and streams of a template that usually has
    several.

    >>> from magus.compiler.ir.schedule import EngineChoice, EngineKind
    >>> expression_of(OpChoice("serial", 8, EngineChoice(EngineKind.DMA, 7)))
    'serial(engine=dma(7))'
    """
    arguments = (f"{knob.word}={text}" for knob, text in _arguments(choice))
    return f"{choice.template}({', '.join(arguments)})"


def short_text_of(choice: OpChoice) -> str:
    """``bespoke (3 parts, dma(7), 2 streams)``: the arguments in words, of lists of sizes only how many there are.

    >>> from magus.compiler.ir.schedule import EngineChoice, EngineKind
    >>> engine = EngineChoice(EngineKind.DMA, 3)
    >>> short_text_of(OpChoice("bespoke", 4, engine, 2, parts=((64, 0), (0, 64)), slices=((), (128, 256))))
    'bespoke (2 parts, 1 cut along k, dma(3), 2 streams)'
    """
    words = (_short(knob, text, choice) for knob, text in _arguments(choice))
    return f"{choice.template} ({', '.join(words)})"


def words_of(choice: OpChoice, pattern: Pattern, num_ranks: int) -> str:
    """What a schedule of an op of ``pattern`` does; its template and arguments where there are no words for it.

    >>> from magus.compiler.ir.schedule import EngineChoice, EngineKind
    >>> engine = EngineChoice(EngineKind.DMA, 3)
    >>> parts = ((64, 0), (0, 24), (0, 40))
    >>> words_of(OpChoice("bespoke", 4, engine, 2, parts=parts), Pattern.AG_GEMM, 4)
    'own rows first, then 24 + 40 of each other rank, by 3 copy engines'
    """
    template, pieces = BY_NAME[choice.template], choice.chunks // num_ranks
    what = template.words[pattern.produces].format(
        parts=parts_in_words(choice.parts),
        rounds=_counted(pieces, "rounds"),
        slices=_counted(pieces * (num_ranks - 1), "slices"),
        algorithm=choice.algorithm or template.default_algorithm,
    )
    if not what or (not pattern.overlaps and not pattern.independent):
        return expression_of(choice)
    cuts = [_short(knob, "", choice) for knob in (SLICES, COLUMNS) if any(knob.of(choice))]
    kernel, tile = _KERNELS_IN_WORDS[choice.tactics.kernel], choice.tactics.tile
    kernel = (*kernel, "tiles of {} x {}".format(*tile)) if tile else kernel
    kernel = (*kernel, f"k in {choice.tactics.split_k} parts") if choice.tactics.split_k > 1 else kernel
    return ", ".join([what, f"by {engine_words(choice.engine)}", *kernel, *cuts])


_KERNELS_IN_WORDS = {
    Kernels.LAUNCHED: (),
    Kernels.PERSISTENT: ("one persistent kernel",),
    Kernels.SHARING: ("tiles for a share of the SMs",),
}


def engine_words(engine: EngineChoice) -> str:
    """Who moves data, in words."""
    if engine.by_library or engine.by_tiles:
        return "the library" if engine.by_library else "the tiles themselves"
    return _counted(engine.count, "copy engines" if engine.kind is EngineKind.DMA else "SMs")


def _short(knob: Knob, text: str, choice: OpChoice) -> str:
    if isinstance(knob.values, SizeValues):
        sizes = knob.of(choice)
        return (
            _counted(len(sizes), knob.word)
            if knob in (PARTS, TREES)
            else f"{sum(map(bool, sizes))} cut {_CUT.get(knob.word, f'by {knob.word}')}"
        )
    if knob.word in _COUNTED:
        return _counted(int(text), knob.word)
    return text if knob.word == "engine" else f"{knob.word} {text}"


def _counted(number: int, things: str) -> str:
    return f"{number} {things if number != 1 else things.removesuffix('s')}"


_CUT = {"slices": "along k", "columns": "by columns"}
_COUNTED = ("chunks", "streams", "lanes")


def _arguments(choice: OpChoice) -> Iterator[tuple[Knob, str]]:
    """Yield what is said of a choice, knob by knob."""
    options = dict(non_default_options(choice.tactics))
    for knob in knobs.KNOBS:
        text = options.get(knob.word) if knob.option else _text(knob, choice)
        if text is not None:
            yield knob, text


def _text(knob: Knob, choice: OpChoice) -> str | None:
    """The value of ``knob`` as an argument, None if it is left out."""
    value, template = knob.of(choice), BY_NAME[choice.template]
    if knob in (CHUNKS, STREAMS):
        said = knob.has(template) and (knob is CHUNKS or max(value, template.default_streams) > 1)
        return str(value) if said else None
    return None if knob is TEMPLATE or value == knob.usual else value_text(value)


_EXECUTION = {ENGINE.word, *OPTIONS}


class ScheduleError(RejectedError):
    """A schedule that cannot run on its scenario, and why."""


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


def build_op_plan(scenario: OpCase, body: OpChoice | WrittenPlan, name: str = "") -> OpPlan:
    """The chunk plan for ``body`` on ``scenario``; ``name`` is the identity of a plan written out.

    Raises
    ------
    ScheduleError
        If the choice is illegal here; see ``reject_choice``.
    """
    if isinstance(body, WrittenPlan):
        ScheduleError.require(reject_execution(scenario, body.engine, body.tactics))
        sms, ranks = compute_sms(scenario, body.engine, body.overlaps), body.by_rank or (body.steps,)
        sliced = any(isinstance(step, TileGroup) and step.accumulate for step in chain(*ranks))
        staging = staging_of_steps(scenario, ranks, slices_inner=sliced)
        return OpPlan(name, body.steps, body.engine, sms, staging, body.overrides, body.tactics, body.by_rank)
    return next(build_schedules(scenario, (body,)))


def build_schedules(scenario: OpCase, choices: Iterable[OpChoice]) -> Iterator[OpPlan]:
    """Yield the chunk plan for each of ``choices``; those that differ in their engines alone mostly share its steps.

    Raises
    ------
    ScheduleError
        If a choice is illegal here; see ``reject_choice``.
    """
    written: dict[tuple[str, TemplateInput], tuple[tuple[Step, ...], tuple[tuple[Step, ...], ...]]] = {}
    for choice in choices:
        template, (request, unfit) = template_named(choice.template), _examined(scenario, choice, knobs.KNOBS)
        ScheduleError.require(unfit)
        problem = replace(request.problem, engine=EngineKind.DMA) if template.any_engine else request.problem
        plan = template.name, problem
        known = written.get(plan)  # a problem is hashed by all its parts
        steps, by_rank = known or written.setdefault(plan, template.write(problem))
        sliced = bool(choice.slices) or slices_inner(scenario, template)
        yield OpPlan(
            expression_of(choice),
            steps,
            choice.engine,
            compute_sms(scenario, choice.engine, template.overlaps and not scenario.shape.is_collective),
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


def reject_choice(scenario: OpCase, choice: OpChoice) -> Rejection | None:
    """Why ``choice`` cannot run on ``scenario``, None if it can.

    Raises
    ------
    ScheduleError
        If there is no such template.
    """
    template_named(choice.template)
    return _examined(scenario, choice, knobs.KNOBS)[1]


@lru_cache(maxsize=256)  # what is proposed is asked about first, and built then
def _examined(scenario: OpCase, choice: OpChoice, known: tuple[Knob, ...]) -> tuple[ScheduleRequest, Rejection | None]:
    request = ScheduleRequest(scenario, choice)
    return request, _first_rejection(request, _rules_of(known))


def reject_execution(scenario: OpCase, engine: EngineChoice, tactics: ExecutionOptions) -> Rejection | None:
    """Why the system cannot carry out a plan with ``tactics`` and ``engine``, None if it can."""
    if engine.by_library:
        return reject_library_plan(engine)
    choice = OpChoice(BASELINE.name, scenario.num_ranks, engine, tactics=tactics)
    of_machine = (rule for rule in all_rules() if _EXECUTION.issuperset(rule.knobs))
    return _first_rejection(ScheduleRequest(scenario, choice), of_machine)


def _first_rejection(request: ScheduleRequest, rules: Iterable[Rule]) -> Rejection | None:
    return next((rejection for rule in rules if (rejection := rule.reject(request)) is not None), None)


def compute_sms(scenario: OpCase, engine: EngineChoice, overlaps: bool) -> int:
    """SMs left to kernels; those that copies share are left to them."""
    taken = engine.count if overlaps and not engine.leaves_all_sms else 0
    return scenario.gpu.sms - taken


def declared(scenario: OpCase, named: NamedSchedule) -> OpPlan:
    """The Schedule a file declares under a name."""
    return build_op_plan(scenario, named.body, named.name)


def schedule_block(choice: Schedule, graph_name: str) -> str:
    """``schedule NAME for WORKLOAD { ... }``, which compiles to a choice equal to ``choice``.

    Raises
    ------
    ScheduleError
        If an op has a plan written out, which a block of a workload has no words for.
    """
    lines = "".join(f"  {statement}\n" for statement in _statements(choice))
    return f"schedule {choice.name} for {graph_name} {{{chr(10) if lines else ' '}{lines}}}\n"


def expression_of_schedule(choice: Schedule) -> str:
    """What ``choice`` says, on one line, without its name: the same for choices that say the same in another order.

    Raises
    ------
    ScheduleError
        As ``schedule_block``.

    >>> from ..ir import OpChoice, EngineChoice, EngineKind
    >>> serial = OpMode("y", OpChoice("serial", 8, EngineChoice(EngineKind.DMA, 7)))
    >>> expression_of_schedule(Schedule("mine", (serial,), low=("y",), handoff=HandOff.WHOLE))
    '{ y = serial(engine=dma(7)); priority y low; handoff whole }'
    """
    statements = "; ".join(_statements(_sorted(choice)))
    return f"{{ {statements} }}" if statements else "{ }"


def _sorted(choice: Schedule) -> Schedule:
    """``choice`` with everything sorted whose order says nothing; ops that are separated stand together."""
    return replace(
        choice,
        modes=tuple(sorted(choice.modes, key=lambda mode: (mode.separate is not None, str(mode.separate), mode.op))),
        streams=tuple(sorted(choice.streams, key=lambda pair: (pair[1], pair[0]))),
        starts_with=tuple(sorted(choice.starts_with, key=lambda pair: (pair[1], pair[0]))),
        low=tuple(sorted(choice.low)),
        chained=tuple(sorted(choice.chained)),
    )


def _statements(choice: Schedule) -> Iterator[str]:
    if choice.batches > 1:
        yield f"batches {choice.batches}"
    if choice.groups:
        even = choice.groups == even_groups(sum(choice.groups), len(choice.groups))
        yield f"groups {len(choice.groups)}" if even else f"groups of {', '.join(map(str, choice.groups))}"
    for separate, modes in groupby(choice.modes, key=lambda mode: mode.separate):
        if separate is None:
            yield from (f"{mode.op} = {_body_text(mode)}" for mode in modes if mode.body is not None)
        else:
            yield f"separate {listing(mode.op for mode in modes)} by {whole_text(separate)}"
    if choice.chained:
        yield f"chained {listing(choice.chained)}"
    if choice.order:
        yield f"order {listing(choice.order)}"
    if choice.deferred:
        yield f"deferred {listing(choice.deferred)}"
    for stream, ops in groupby(choice.streams, key=lambda pair: pair[1]):
        if stream:  # 0 is the main one, where kernels run anyhow
            yield f"stream {stream} {listing(name for name, _ in ops)}"
    for kernel, pairs in groupby(choice.starts_with, key=lambda pair: pair[1]):
        yield f"start {listing(name for name, _ in pairs)} with {kernel}"
    if choice.prefetch:
        yield f"prefetch {choice.prefetch}"
    if choice.sums_first or choice.low:
        yield f"priority {listing((*(['sums'] if choice.sums_first else []), *(f'{name} low' for name in choice.low)))}"
    if choice.handoff is not HandOff.CHUNKS:
        yield f"handoff {choice.handoff.value}"


def whole_text(choice: OpChoice) -> str:
    """How a collective is carried out as a whole: by its engine where that is all there is to say."""
    usual = OpChoice(BASELINE.name, choice.chunks, choice.engine)
    return str(choice.engine) if choice == usual else expression_of(choice)


def _body_text(mode: OpMode) -> str:
    if isinstance(mode.body, WrittenPlan):
        message = f"{mode.op} has a plan written out, which a schedule of several ops has no words for"
        raise ScheduleError(Rejection(Code.MGS509, message, "write the plan as JSON"))
    assert mode.body is not None, "modes without a body are as usual, and left out"
    return expression_of(mode.body)
