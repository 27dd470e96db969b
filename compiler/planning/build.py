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
    FatTree,
    Kernels,
    NamedSchedule,
    Pattern,
    Plan,
    Rails,
    Scenario,
    Schedule,
    TileGroup,
    cutting_of,
    inner_size,
    tile_cols,
)
from ..templates import BY_NAME, Cut, Template, why_not
from ..templates.base import TemplateInput
from ..templates.bespoke import why_no_parts
from ..templates.cuts import why_no_cuts
from ..templates.serving import why_not_served
from .execution import Misfit, why_no_mode, why_no_persistent, why_no_reach, why_no_tactics
from .expression import expression_of
from .staging import slices_inner as slices_inner
from .staging import staging_bytes as staging_bytes
from .staging import staging_of_steps

# SMs that copy are taken from the kernels; more than half of them is no overlap schedule any more.
MAX_COPY_SHARE = 2


class ScheduleError(ValueError):
    """A schedule that cannot run on its scenario; ``code`` is the diagnostic's, the message says why."""

    def __init__(self, code: Code, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


def template_named(name: str) -> Template:
    """The template of that name.

    Raises
    ------
    ScheduleError
        If there is none.
    """
    if name not in BY_NAME:
        raise ScheduleError(Code.MGS505, f"there is no template '{name}'", f"templates are {', '.join(BY_NAME)}")
    return BY_NAME[name]


def build_schedule(scenario: Scenario, body: Choice | Plan, name: str = "") -> Schedule:
    """The chunk plan for ``body`` on ``scenario``; ``name`` is the identity of a plan written out.

    Raises
    ------
    ScheduleError
        If the choice is illegal here; see ``why_illegal``.
    """
    if isinstance(body, Plan):
        check_engine(scenario, body.engine)
        check_tactics(scenario, body.engine, body.tactics)
        sms, ranks = compute_sms(scenario, body.engine, body.overlaps), body.by_rank or (body.steps,)
        sliced = any(isinstance(step, TileGroup) and step.accumulate for step in chain(*ranks))
        staging = staging_of_steps(scenario, ranks, slices_inner=sliced)
        return Schedule(name, body.steps, body.engine, sms, staging, body.overrides, body.tactics, body.by_rank)
    template = template_named(body.template)
    problem = why_illegal(scenario, body)
    if problem is not None:
        raise problem
    steps, by_rank = template.write(problem_of(scenario, body))
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


def why_illegal(scenario: Scenario, choice: Choice) -> ScheduleError | None:
    """Why ``choice`` cannot run on ``scenario``, or None if it can."""
    template = template_named(choice.template)
    pattern = scenario.workload.pattern
    if pattern not in template.patterns:
        fits = ", ".join(known.value for known in template.patterns)
        message = f"{template.name} does not schedule {scenario.workload.label}"
        return ScheduleError(Code.MGS511, message, f"it schedules {fits}")
    try:
        check_engine(scenario, choice.engine)
        check_tactics(scenario, choice.engine, choice.tactics)
    except ScheduleError as error:
        return error
    if choice.algorithm and scenario.workload.moved is None:
        return ScheduleError(Code.MGS511, f"{pattern.value} moves nothing, by no algorithm", "leave algorithm out")
    if template.has_parts and scenario.workload.loads:
        message = f"{template.name} counts the rows of each peer, the same for every rank, and here loads differ"
        return ScheduleError(Code.MGS515, message, "hetero_fused_1d and pipelined cut what each rank has")
    problem = _why_not_cut(scenario, template, choice.chunks) or _why_no_parts(scenario, template, choice)
    if problem is not None:
        return problem
    asked = problem_of(scenario, choice)
    reason = why_not(template, asked)
    if reason is not None:
        return ScheduleError(Code.MGS511, *reason)
    reason = why_not_served(template, asked)
    return None if reason is None else ScheduleError(Code.MGS513, *reason)


def check_engine(scenario: Scenario, engine: EngineChoice) -> None:
    """Raise ScheduleError if the GPU cannot grant ``engine``."""
    gpu = scenario.gpu
    if engine.kind is EngineKind.DMA and not 1 <= engine.count <= gpu.dma.engines:
        message = f"{engine.count} DMA engines asked, {gpu.name} has {gpu.dma.engines}"
        raise ScheduleError(Code.MGS401, message, f"use dma({gpu.dma.engines}) or fewer")
    most = gpu.sms // MAX_COPY_SHARE
    if engine.kind is EngineKind.SM and not 1 <= engine.count <= most:
        message = f"{engine.count} SMs asked for copying, at most {most} of {gpu.name}'s {gpu.sms} may copy"
        raise ScheduleError(Code.MGS401, message, f"use sm({most}) or fewer")

    _raise_if(why_no_mode(gpu, engine))


def check_tactics(scenario: Scenario, engine: EngineChoice, tactics: ExecutionOptions) -> None:
    """Raise ScheduleError if the system cannot carry out ``tactics`` with ``engine``."""
    _raise_if(why_no_tactics(scenario.system, engine, tactics))
    if tactics.kernel is Kernels.PERSISTENT and scenario.workload.pattern.overlaps:
        _raise_if(why_no_persistent(scenario.workload))


def _raise_if(misfit: Misfit | None) -> None:
    if misfit is not None:
        raise ScheduleError(*misfit)


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


def _why_not_cut(scenario: Scenario, template: Template, chunks: int) -> ScheduleError | None:
    n, moved = scenario.num_ranks, scenario.workload.moved
    if template.cut is Cut.SHARD:
        if chunks != n and moved is not None:
            return ScheduleError(Code.MGS512, f"{template.name} moves whole shards, {n} of them", f"chunks={n}")
        return None
    assert moved is not None, "templates that cut shards schedule only workloads that move a tensor"
    if chunks % n or chunks // n < template.min_pieces:
        least = n * template.min_pieces
        message = (
            f"{chunks} chunks of {template.name} do not divide among {n} ranks, {template.min_pieces} or more each"
        )
        return ScheduleError(Code.MGS512, message, f"use a multiple of {n} from {least} up")
    pieces = chunks // n
    column_step = max(cutting_of(stage).column_step for stage in scenario.workload.stages or (scenario.workload,))
    size, step, what = (
        (moved.rows // n, 1, "rows of a shard") if template.cut is Cut.ROWS else (moved.cols, column_step, "columns")
    )
    if size % (pieces * step):
        grain = f" of a multiple of {step}" if step > 1 else ""
        message = f"{size} {what} do not divide into {pieces} equal chunks{grain}"
        return ScheduleError(Code.MGS512, message, _cut_hint(size // step, n, template))
    return None


def _why_no_parts(scenario: Scenario, template: Template, choice: Choice) -> ScheduleError | None:
    if (choice.parts or choice.slices or choice.columns or choice.lanes) and not template.has_parts:
        message = f"{template.name} is not told its parts, slices, columns or lanes"
        return ScheduleError(Code.MGS511, message, "bespoke takes them")
    if choice.lanes > choice.engine.count:
        return ScheduleError(Code.MGS401, f"{choice.lanes} lanes of {choice.engine}", "a lane is an engine")
    asked = problem_of(scenario, choice)
    reason = (why_no_parts(asked) if choice.parts else None) or why_no_cuts(asked)
    return None if reason is None else ScheduleError(Code.MGS514, *reason)


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
        node=_node_size(scenario),
        multicast=why_no_reach(scenario.system, sums=False) is None,
        reduces=why_no_reach(scenario.system, sums=True) is None,
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


def _node_size(scenario: Scenario) -> int:
    """Ranks that are nearer to each other than to the rest, 0 where the fabric has no such groups."""
    match scenario.system.fabric.layout:
        case Rails(node=size) | FatTree(leaf=size):
            return size
        case _:
            return 0


def declared(scenario: Scenario, named: NamedSchedule) -> Schedule:
    """The Schedule a file declares under a name."""
    return build_schedule(scenario, named.body, named.name)
