"""The structure of a schedule: the template, the number of chunks, streams, and the collective algorithm."""

from dataclasses import replace

from ...codes import Code
from ...collectives import ALGORITHM_BY_NAME
from ...ir import COLUMN_STEP, Adds, Kernels, OpCase, Pattern, PeerOrder, Rejection, cutting_of
from ...templates import ALL_TEMPLATES, Cut, Template
from ...templates.base import TemplateInput
from ...templates.collective import reject_algorithm
from ...text.vocabulary import MAX_STREAMS
from .base import CountValues, Knob, NameValues, Rule, ScheduleRequest, WordValues

_MOST_HINTS, _MOST_PIECES = 4, 64


def _reject_pattern(request: ScheduleRequest) -> Rejection | None:
    template, shape = request.template, request.scenario.shape
    if shape.pattern in template.patterns:
        return None
    fits = ", ".join(pattern.value for pattern in template.patterns)
    return _rejection(f"{template.name} does not schedule {shape.label}", f"it schedules {fits}")


def _fitting(scenario: OpCase) -> str:
    shape = scenario.shape
    names = [template.name for template in ALL_TEMPLATES if shape.pattern in template.patterns]
    return f"{shape.label} is scheduled by {', '.join(names[:-1])} and {names[-1]} alone"


def _reject_cut(request: ScheduleRequest) -> Rejection | None:
    return _uncut(request.template, request.problem)


def _uncut(template: Template, problem: TemplateInput) -> Rejection | None:
    """Why a kernel cannot be cut as ``template`` does, None if each can."""
    if problem.then is not None:
        return _uncut(template, replace(problem, then=None)) or _uncut(template, problem.then)
    if not template.overlaps or template.cut is Cut.COLUMNS:
        return None
    if template.has("parts") and problem.cutting.adds is Adds.BLOCKS:
        hint = "hetero_fused_1d takes the same rows of all blocks"
        return _rejection("parts of different sizes do not lie side by side", hint)
    if not problem.cutting.by_rows:
        why = f"{template.name} cuts rows, and a query that comes by all_to_all needs the keys of all rows"
        return _rejection(why, "uniform_fused_2d cuts heads")
    if problem.cutting.adds_ranks and not template.rows_from_all_ranks and problem.streams > 1:
        what = "parts of the keys" if problem.adds_rows else "blocks side by side"
        return _rejection(f"kernels over {what} add to one output, one after the other", "streams=1")
    return None


TEMPLATE = Knob(
    "schedules",
    NameValues(lambda: tuple(template.name for template in ALL_TEMPLATES)),
    rules=(Rule(("schedules",), _reject_pattern, _fitting), Rule(("schedules", "streams"), _reject_cut)),
    named="template",
)


def _reject_shards(request: ScheduleRequest) -> Rejection | None:
    template, n = request.template, request.scenario.num_ranks
    if template.cuts_shards or request.choice.chunks == n or request.scenario.shape.moved is None:
        return None
    return Rejection(Code.MGS512, f"{template.name} moves whole shards, {n} of them", f"chunks={n}")


def _reject_remainder(request: ScheduleRequest) -> Rejection | None:
    chunks, n = request.choice.chunks, request.scenario.num_ranks
    if not request.template.cuts_shards or chunks % n == 0:
        return None
    return Rejection(Code.MGS512, f"{chunks} chunks do not divide among {n} ranks", _multiples(request))


def _reject_few(request: ScheduleRequest) -> Rejection | None:
    template, n = request.template, request.scenario.num_ranks
    if not template.cuts_shards or request.choice.chunks // n >= template.min_pieces:
        return None
    least = n * template.min_pieces
    return Rejection(Code.MGS512, f"{template.name} needs {least} chunks or more", _multiples(request))


def _multiples(request: ScheduleRequest) -> str:
    n = request.scenario.num_ranks
    return f"use a multiple of {n} from {n * request.template.min_pieces} up"


def _reject_rows(request: ScheduleRequest) -> Rejection | None:
    if request.template.cut is not Cut.ROWS:
        return None
    scenario, chunks = request.scenario, request.choice.chunks
    rows, pieces, shape = _shard_rows(scenario), chunks // scenario.num_ranks, scenario.shape
    # Of columns of the text; whole parts are as they are.
    step = COLUMN_STEP if shape.by_columns and shape.gemm is not None and pieces > 1 else 1
    what = "columns of a part" if shape.by_columns else "rows of a shard"
    if not shape.uneven_parts and not request.template.has("trees"):
        return _reject_size(request, rows, step, what)
    if pieces * step <= rows:  # parts differ in size, and so do their pieces
        return None
    message = f"a part of {rows} {what.split()[0]} is too small for {pieces} chunks of {step} or more"
    return Rejection(Code.MGS512, message, f"at most chunks={max(1, rows // step) * scenario.num_ranks}")


def _reject_columns(request: ScheduleRequest) -> Rejection | None:
    if request.template.cut is not Cut.COLUMNS:
        return None
    return _reject_size(request, _cols(request.scenario), _column_step(request.scenario), "columns")


def _reject_size(request: ScheduleRequest, size: int, step: int, what: str) -> Rejection | None:
    """Why ``size`` rows or columns cannot be cut into equal chunks of a multiple of ``step``, None if they can."""
    pieces = max(1, request.choice.chunks // request.scenario.num_ranks)
    if size % (pieces * step) == 0:
        return None
    grain = f" of a multiple of {step}" if step > 1 else ""
    message = f"{size} {what} do not divide into {pieces} equal chunks{grain}"
    return Rejection(Code.MGS512, message, _cut_hint(size // step, request))


def _cut_hint(grains: int, request: ScheduleRequest) -> str:
    """Chunk counts that do divide, as far as there are any."""
    pieces = range(request.template.min_pieces, _MOST_PIECES + 1)
    counts = [str(request.scenario.num_ranks * count) for count in pieces if grains and grains % count == 0]
    if not counts:
        return "this tensor cannot be cut that way; choose another template"
    return f"chunks={', '.join(counts[:_MOST_HINTS])}{' ...' if len(counts) > _MOST_HINTS else ''} would do"


def _shard_rows(scenario: OpCase) -> int:
    """Rows of the block of a rank, of the smallest where those of a sum differ."""
    shape = scenario.shape
    if shape.uneven_parts:
        return min(shape.loads[0])
    return 0 if shape.moved is None else shape.moved.rows // scenario.num_ranks


def _cols(scenario: OpCase) -> int:
    moved = scenario.shape.moved
    return 0 if moved is None else moved.cols


def _column_step(scenario: OpCase) -> int:
    shape = scenario.shape
    return max(cutting_of(stage).column_step for stage in shape.stages or (shape,))


def _columns_divide(scenario: OpCase) -> str:
    return f"the {_cols(scenario)} columns divide into equal chunks of a multiple of {_column_step(scenario)}"


_CUT = ("schedules", "chunks")
CHUNKS = Knob(
    "chunks",
    CountValues(),
    rules=(
        Rule(_CUT, _reject_shards),
        Rule(_CUT, _reject_remainder, lambda scenario: f"chunks are a multiple of the {scenario.num_ranks} ranks"),
        Rule(_CUT, _reject_few),
        Rule(_CUT, _reject_rows, lambda s: f"the {_shard_rows(s)} rows of a shard divide into equal chunks"),
        Rule(_CUT, _reject_columns, _columns_divide),
    ),
    optional=True,
)

STREAMS = Knob("streams", CountValues(MAX_STREAMS, opened=(1, 2, 4)), optional=True)


def _reject_unknown(request: ScheduleRequest) -> Rejection | None:
    name = request.choice.algorithm
    if not name or name in ALGORITHM_BY_NAME:
        return None
    return _rejection(f"there is no algorithm '{name}'", f"algorithms are {', '.join(ALGORITHM_BY_NAME)}")


def _reject_own(request: ScheduleRequest) -> Rejection | None:
    template, shape = request.template, request.scenario.shape
    if not request.choice.algorithm:
        return None
    if shape.moved is None:
        return _rejection(f"{shape.pattern.value} moves nothing, by no algorithm", "leave algorithm out")
    if not template.has("algorithm"):
        return _rejection(f"{template.name} has its own transfers and takes no algorithm", "serial takes one")
    return None


def _reject_algorithm(request: ScheduleRequest) -> Rejection | None:
    if not request.template.default_algorithm:
        return None
    return reject_algorithm(request.problem, request.template.default_algorithm)


ALGORITHM = Knob(
    "algorithm",
    NameValues(lambda: tuple(ALGORITHM_BY_NAME)),
    rules=(
        Rule(("algorithm",), _reject_unknown),
        Rule(("schedules", "algorithm"), _reject_own),
        Rule(("schedules", "engine", "algorithm", "transfer"), _reject_algorithm),
    ),
    optional=True,
)


def _rejection(message: str, hint: str) -> Rejection:
    return Rejection(Code.MGS511, message, hint)


# Patterns whose kernels read what was gathered, and free it.
GATHERS = (Pattern.AG_GEMM, Pattern.A2A_GEMM)


def _reject_order(request: ScheduleRequest) -> Rejection | None:
    if request.choice.order is PeerOrder.ROTATED or request.template.has("order"):
        return None
    return _unserved(f"{request.template.name} serves its peers in one order", "leave order out")


def _reject_sizes(request: ScheduleRequest) -> Rejection | None:
    order = request.choice.order
    if not order.by_size or request.problem.uneven:
        return None
    hint = f"order={order.value} is for an all_to_all with rows=[...]"
    return _unserved(f"order {order.value} goes by sizes, and all transfers are alike", hint)


ORDER = Knob(
    "order",
    WordValues(PeerOrder),
    rules=(Rule(("schedules", "order"), _reject_order), Rule(("order",), _reject_sizes)),
    optional=True,
    of_transfers=True,
)


def _reject_depth(request: ScheduleRequest) -> Rejection | None:
    """Only a get can wait for the kernel that frees its buffer.

    All waits are local to a rank, and a put is issued by another.
    """
    choice, problem = request.choice, request.problem
    if not choice.depth:
        return None
    if problem.pattern not in GATHERS:
        return _unserved(f"{problem.pattern.value} holds nothing that is gathered for a kernel", "leave depth out")
    if not request.template.has("depth"):
        return _unserved(f"{choice.template} holds all that it gathers", "leave depth out")
    if not problem.gets:
        return _unserved("a put cannot wait until the buffer at its destination is free", "say transfer=get")
    if choice.tactics.kernel is Kernels.PERSISTENT and choice.streams > 1:
        why = "persistent kernels of several streams run one after the other, and the first waits for all"
        return _unserved(why, "streams=1")
    if problem.uneven:
        why = "pieces of an uneven all_to_all differ in size, and none fits where another was"
        return _unserved(why, "leave depth out")
    return None


DEPTH = Knob(
    "depth",
    CountValues(opened=(1, 2, 4)),
    rules=(Rule(("schedules", "streams", "transfer", "kernel", "depth"), _reject_depth),),
    optional=True,
    of_transfers=True,
)


def _unserved(message: str, hint: str) -> Rejection:
    return Rejection(Code.MGS513, message, hint)
