"""From a template and its parameters, or a plan written out, to the Schedule that lowering takes."""

from dataclasses import replace
from itertools import chain

from ..codes import Code
from ..ir import COLUMN_STEP as COLUMN_STEP
from ..ir import (
    Choice,
    EngineChoice,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    Gpu,
    Kernels,
    NamedSchedule,
    Pattern,
    Plan,
    Rejection,
    Scenario,
    Schedule,
    TileGroup,
    cutting_of,
    inner_size,
    tile_cols,
)
from ..templates import BY_NAME, Cut, Template, reject_template
from ..templates.base import TemplateInput
from ..templates.bespoke import reject_parts
from ..templates.cuts import reject_cuts
from ..templates.serving import reject_serving
from .execution import reject_mode, reject_persistent, reject_reach, reject_tactics
from .expression import expression_of
from .staging import slices_inner as slices_inner
from .staging import staging_bytes as staging_bytes
from .staging import staging_of_steps

# SMs that copy are taken from the kernels; more than half of them is no overlap schedule any more.
MAX_COPY_SHARE = 2


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
    template = template_named(body.template)
    problem = _problem_unless_rejected(scenario, body)
    if isinstance(problem, Rejection):
        raise ScheduleError(problem)
    steps, by_rank = template.write(problem)
    sliced = bool(body.slices) or slices_inner(scenario, template)
    return Schedule(
        expression_of(body),
        steps,
        body.engine,
        compute_sms(scenario, body.engine, template.overlaps),
        staging_of_steps(scenario, by_rank or (steps,), slices_inner=sliced),
        tactics=body.tactics,
        by_rank=by_rank,
    )


def reject_choice(scenario: Scenario, choice: Choice) -> Rejection | None:
    """Why ``choice`` cannot run on ``scenario``, or None if it can."""
    found = _problem_unless_rejected(scenario, choice)
    return found if isinstance(found, Rejection) else None


def reject_execution(scenario: Scenario, engine: EngineChoice, tactics: ExecutionOptions) -> Rejection | None:
    """Why the system cannot carry out ``tactics`` with ``engine``, or None if it can."""
    unfit = reject_engine(scenario.gpu, engine) or reject_tactics(scenario.system, engine, tactics)
    if unfit is None and tactics.kernel is Kernels.PERSISTENT and scenario.workload.pattern.overlaps:
        return reject_persistent(scenario.workload)
    return unfit


def reject_engine(gpu: Gpu, engine: EngineChoice) -> Rejection | None:
    """Why the GPU cannot grant ``engine``, or None if it can."""
    if engine.kind is EngineKind.DMA and not 1 <= engine.count <= gpu.dma.engines:
        message = f"{engine.count} DMA engines asked, {gpu.name} has {gpu.dma.engines}"
        return Rejection(Code.MGS401, message, f"use dma({gpu.dma.engines}) or fewer")
    most = most_copy_sms(gpu)
    if engine.kind is EngineKind.SM and not 1 <= engine.count <= most:
        message = f"{engine.count} SMs asked for copying, at most {most} of {gpu.name}'s {gpu.sms} may copy"
        return Rejection(Code.MGS401, message, f"use sm({most}) or fewer")
    return reject_mode(gpu, engine)


def most_copy_sms(gpu: Gpu) -> int:
    """SMs that may be taken from the kernels."""
    return gpu.sms // MAX_COPY_SHARE


def _problem_unless_rejected(scenario: Scenario, choice: Choice) -> TemplateInput | Rejection:
    """The workload as the template of ``choice`` sees it, or why that cannot run."""
    template = template_named(choice.template)
    unfit = (
        _reject_pattern(scenario, template)
        or reject_execution(scenario, choice.engine, choice.tactics)
        or _reject_knobs(scenario, template, choice)
        or _reject_chunks(scenario, template, choice.chunks)
        or _reject_lists(template, choice)
    )
    if unfit is not None:
        return unfit
    problem = problem_of(scenario, choice)
    return (
        (reject_parts(problem) if choice.parts else None)
        or reject_cuts(problem)
        or reject_template(template, problem)
        or reject_serving(template, problem)
        or problem
    )


def _reject_pattern(scenario: Scenario, template: Template) -> Rejection | None:
    if scenario.workload.pattern in template.patterns:
        return None
    fits = ", ".join(known.value for known in template.patterns)
    message = f"{template.name} does not schedule {scenario.workload.label}"
    return Rejection(Code.MGS511, message, f"it schedules {fits}")


def _reject_knobs(scenario: Scenario, template: Template, choice: Choice) -> Rejection | None:
    """An algorithm where nothing moves, or the same parts for ranks that differ."""
    workload = scenario.workload
    if choice.algorithm and workload.moved is None:
        return Rejection(Code.MGS511, f"{workload.pattern.value} moves nothing, by no algorithm", "leave algorithm out")
    if template.has_parts and workload.loads:
        message = f"{template.name} counts the rows of each peer, the same for every rank, and here loads differ"
        return Rejection(Code.MGS515, message, "hetero_fused_1d and pipelined cut what each rank has")
    return None


def default_engine(scenario: Scenario) -> EngineChoice:
    """One copy engine for each peer, as far as the GPU has that many."""
    return EngineChoice(EngineKind.DMA, max(1, min(scenario.gpu.dma.engines, scenario.num_ranks - 1)))


def compute_sms(scenario: Scenario, engine: EngineChoice, overlaps: bool) -> int:
    """SMs left to kernels; those that copies share are left to them."""
    own = engine.kind is EngineKind.SM and engine.mode is not EngineMode.SHARED
    taken = engine.count if overlaps and own else 0
    return scenario.gpu.sms - taken


def pieces_of(chunks: int, num_ranks: int, template: Template) -> int:
    """Chunks per shard; ``chunks`` counts pieces of the whole tensor."""
    return 1 if template.cut is Cut.SHARD else chunks // num_ranks


def _reject_chunks(scenario: Scenario, template: Template, chunks: int) -> Rejection | None:
    n, moved = scenario.num_ranks, scenario.workload.moved
    if template.cut is Cut.SHARD:
        if chunks != n and moved is not None:
            return Rejection(Code.MGS512, f"{template.name} moves whole shards, {n} of them", f"chunks={n}")
        return None
    assert moved is not None, "templates that cut shards schedule only workloads that move a tensor"
    if chunks % n or chunks // n < template.min_pieces:
        least = n * template.min_pieces
        message = (
            f"{chunks} chunks of {template.name} do not divide among {n} ranks, {template.min_pieces} or more each"
        )
        return Rejection(Code.MGS512, message, f"use a multiple of {n} from {least} up")
    pieces = chunks // n
    column_step = max(cutting_of(stage).column_step for stage in scenario.workload.stages or (scenario.workload,))
    size, step, what = (
        (moved.rows // n, 1, "rows of a shard") if template.cut is Cut.ROWS else (moved.cols, column_step, "columns")
    )
    if size % (pieces * step):
        grain = f" of a multiple of {step}" if step > 1 else ""
        message = f"{size} {what} do not divide into {pieces} equal chunks{grain}"
        return Rejection(Code.MGS512, message, _cut_hint(size // step, n, template))
    return None


def _reject_lists(template: Template, choice: Choice) -> Rejection | None:
    """Parts and what goes with them, of a template that takes none; more lanes than engines."""
    if (choice.parts or choice.slices or choice.columns or choice.lanes) and not template.has_parts:
        message = f"{template.name} is not told its parts, slices, columns or lanes"
        return Rejection(Code.MGS511, message, "bespoke takes them")
    if choice.lanes > choice.engine.count:
        return Rejection(Code.MGS401, f"{choice.lanes} lanes of {choice.engine}", "a lane is an engine")
    return None


def _cut_hint(grains: int, num_ranks: int, template: Template) -> str:
    """Chunk counts that do divide, as far as there are any."""
    counts = [num_ranks * pieces for pieces in range(template.min_pieces, 65) if grains and grains % pieces == 0]
    if not counts:
        return "this tensor cannot be cut that way; choose another template"
    return f"chunks={', '.join(map(str, counts[:4]))}{' ...' if len(counts) > 4 else ''} would do"


def problem_of(scenario: Scenario, choice: Choice) -> TemplateInput:
    """The workload as the template of ``choice`` sees it."""
    if scenario.workload.then is not None:
        first, then = (problem_of(stage, choice) for stage in scenario.stages)
        return replace(first, then=then)
    workload, n = scenario.workload, scenario.num_ranks
    moved, gemm, alone = workload.moved, workload.gemm, workload.pattern is Pattern.KERNEL
    rows = moved.rows if moved is not None else gemm.m if gemm is not None else 0
    return TemplateInput(
        pattern=workload.pattern,
        num_ranks=1 if workload.pattern in (Pattern.GEMM, Pattern.KERNEL) else n,
        shard_rows=rows // (n if moved is not None else 1),
        cols=moved.cols if moved is not None else 0,
        inner=0 if alone else inner_size(workload),
        output_cols=0 if alone else tile_cols(workload),
        pieces=pieces_of(choice.chunks, n, template_named(choice.template)),
        streams=choice.streams,
        output_rows=gemm.m if gemm is not None else 0,
        algorithm=choice.algorithm,
        tactics=choice.tactics,
        engine=choice.engine.kind,
        split=workload.split,
        loads=workload.loads,
        rank=workload.rank,
        node=scenario.system.fabric.node_size,
        multicast=reject_reach(scenario.system, sums=False) is None,
        reduces=reject_reach(scenario.system, sums=True) is None,
        cutting=cutting_of(workload),
        parts=choice.parts,
        slices=choice.slices,
        columns=choice.columns,
        lanes=choice.lanes,
        order=choice.order,
        depth=choice.depth,
        waves=choice.waves,
        sums=choice.sums,
    )


def declared(scenario: Scenario, named: NamedSchedule) -> Schedule:
    """The Schedule a file declares under a name."""
    return build_schedule(scenario, named.body, named.name)
