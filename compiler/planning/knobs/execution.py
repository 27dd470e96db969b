"""How a schedule is carried out: the knobs whose values are in ``ExecutionOptions``."""

from ...codes import Code
from ...ir import (
    SPLITS,
    Adds,
    CopyProtocol,
    Direction,
    EngineKind,
    Gpu,
    Kernels,
    LaunchMode,
    OpShape,
    Rejection,
    Wait,
    WaitPer,
)
from ...templates.bespoke import reject_cuts, reject_parts, shortened, shortened_cuts
from ...templates.forest import reject_copies, reject_trees
from ...text.diagnostics import listing
from ...text.vocabulary import MAX_STREAMS
from .base import CountValues, Knob, Rule, ScheduleRequest, SizeValues, TileValues, WordValues, value_text

USUAL_WAIT = {Kernels.LAUNCHED: Wait.EVENT, Kernels.PERSISTENT: Wait.POLL, Kernels.SHARING: Wait.EVENT}


def _reject_get(request: ScheduleRequest) -> Rejection | None:
    pattern = request.problem.pattern
    if not (request.problem.gets and pattern.produces):
        return None
    what = f"partial sums of {pattern.value}" if pattern.sums else "rows for others"
    hint = "a get cannot know when they are there; leave transfer=get out"
    return Rejection(Code.MGS511, f"{what} are put by the rank that computes them", hint)


TRANSFER = Knob(
    "transfer",
    WordValues(Direction),
    rules=(Rule(("schedules", "transfer"), _reject_get),),
    of_transfers=True,
    named="direction",
)


def _reject_protocol(request: ScheduleRequest) -> Rejection | None:
    protocol, engine, link = request.choice.tactics.protocol, request.choice.engine, request.scenario.system.fabric.link
    if protocol is CopyProtocol.SIMPLE:
        return None
    if engine.kind is not EngineKind.SM:
        message = f"protocol {protocol.value} is one of copies by SMs, not of {engine}"
        return Rejection(Code.MGS408, message, "use engine sm(16)")
    if protocol not in link.protocols:
        known = ", ".join(each.value for each in link.protocols)
        return Rejection(
            Code.MGS408, f"link {link.name} does not carry protocol {protocol.value}", f"it carries: {known}"
        )
    return None


PROTOCOL = Knob(
    "protocol", WordValues(CopyProtocol), rules=(Rule(("engine", "protocol"), _reject_protocol),), of_transfers=True
)


def _reject_persistent(request: ScheduleRequest) -> Rejection | None:
    if request.choice.tactics.kernel is not Kernels.PERSISTENT or not request.scenario.shape.pattern.overlaps:
        return None
    return persistent_rejection(request.scenario.shape)


def _reject_sharing(request: ScheduleRequest) -> Rejection | None:
    gpu, gemm = request.scenario.gpu, request.scenario.shape.gemm
    if request.choice.tactics.kernel is not Kernels.SHARING:
        return None
    if gemm is None or not gpu.gemm.fewest_sms:
        has = (
            "no kernels of its own"
            if gemm is None
            else f"no library that picks tiles for some of the SMs of {gpu.name}"
        )
        return Rejection(Code.MGS513, f"{request.scenario.shape.label} has {has}", "leave kernel=sharing out")
    if request.choice.streams > 1:
        return None
    return Rejection(Code.MGS513, "kernels of one stream share their SMs with no other", "say streams=8")


def persistent_rejection(shape: OpShape) -> Rejection | None:
    """Why no persistent kernel can compute ``shape``, None if one can."""
    if shape.may_persist:
        return None
    has = "none" if shape.then is None else "two kernels"
    message = f"a persistent kernel walks through the tiles of one GEMM, {shape.label} has {has}"
    return Rejection(Code.MGS511, message, "leave kernel=persistent out")


KERNEL = Knob(
    "kernel",
    WordValues(Kernels),
    rules=(Rule(("kernel",), _reject_persistent), Rule(("kernel", "streams"), _reject_sharing)),
)


def _reject_wait(request: ScheduleRequest) -> Rejection | None:
    wait, persistent = request.choice.tactics.wait, request.choice.tactics.kernel is Kernels.PERSISTENT
    if wait is not Wait.EVENT and not persistent:
        return Rejection(Code.MGS513, f"only a persistent kernel waits by {wait.value}", "say kernel=persistent")
    if wait is Wait.EVENT and persistent:
        message = "a persistent kernel is launched once and cannot wait for events in between"
        return Rejection(Code.MGS513, message, "say wait=poll or wait=monitor")
    return None


def _reject_monitor(request: ScheduleRequest) -> Rejection | None:
    gpu = request.scenario.gpu
    if request.choice.tactics.wait is not Wait.MONITOR or gpu.sync.monitor_entries:
        return None
    return Rejection(Code.MGS410, f"{gpu.name} has no monitors that kernels could wait with", "say wait=poll")


WAIT = Knob("wait", WordValues(Wait), rules=(Rule(("kernel", "wait"), _reject_wait), Rule(("wait",), _reject_monitor)))


def _reject_per(request: ScheduleRequest) -> Rejection | None:
    tactics = request.choice.tactics
    if tactics.per is WaitPer.CHUNK or tactics.kernel is Kernels.PERSISTENT:
        return None
    return Rejection(Code.MGS513, "only a persistent kernel looks again for each tile", "say kernel=persistent")


PER = Knob("per", WordValues(WaitPer), rules=(Rule(("kernel", "per"), _reject_per),))
LAUNCH = Knob("launch", WordValues(LaunchMode))


def _reject_library(request: ScheduleRequest, word: str) -> Rejection | None:
    """Why a kernel cannot be told its ``word``; None if it can."""
    if request.choice.tactics.kernel is Kernels.PERSISTENT:
        return None
    message = f"only a persistent kernel takes {word}: other kernels are the library's, which picks it"
    return Rejection(Code.MGS513, message, f"say kernel=persistent, or leave {word} out")


def _reject_untiled(shape: OpShape, word: str) -> Rejection | None:
    if shape.gemm is not None and shape.gemm.n > 1:
        return None
    message = f"{shape.label} has no GEMM with more than one column, and nothing else has tiles"
    return Rejection(Code.MGS513, message, f"leave {word} out")


def reject_tile(gpu: Gpu, shape: OpShape, tile: tuple[int, ...]) -> Rejection | None:
    """Return why no kernel of ``shape`` on ``gpu`` has tiles of these rows and columns, None if one has."""
    gemm = shape.gemm
    untiled = _reject_untiled(shape, "tile")
    if untiled is not None or gemm is None:
        return untiled
    known = [value_text(block) for block, _ in gpu.tiles_of(gemm.dtype)]
    if value_text(tile) in known:
        return None
    message = f"the times of tiles of {tile[0]} x {tile[1]} are not known on {gpu.name}"
    return Rejection(Code.MGS513, message, f"its tiles are {listing(known)}")


def reject_split(gpu: Gpu, shape: OpShape, split: int) -> Rejection | None:
    """Return why no kernel of ``shape`` on ``gpu`` computes tiles in ``split`` parts of k, None if one does."""
    gemm = shape.gemm
    untiled = _reject_untiled(shape, "split_k")
    if untiled is not None or gemm is None:
        return untiled
    known = gpu.splits_of(gemm.dtype, gemm.k)
    if split in known:
        return None
    if known == SPLITS[:1]:
        message = f"kernels of {gemm.dtype.value} on {gpu.name} do not split an inner dimension of {gemm.k:,}"
        return Rejection(Code.MGS513, message, "leave split_k out")
    message = f"{split} parts of an inner dimension of {gemm.k:,} are none that kernels have on {gpu.name}"
    return Rejection(Code.MGS513, message, f"split_k is {listing(map(str, known))}")


def _reject_tile(request: ScheduleRequest) -> Rejection | None:
    tile, scenario = request.choice.tactics.tile, request.scenario
    if not tile:
        return None
    return _reject_library(request, "tile") or reject_tile(scenario.gpu, scenario.shape, tile)


def _reject_split(request: ScheduleRequest) -> Rejection | None:
    split, scenario = request.choice.tactics.split_k, request.scenario
    if split == 1:
        return None
    return _reject_library(request, "split_k") or reject_split(scenario.gpu, scenario.shape, split)


TILE = Knob("tile", TileValues(), rules=(Rule(("kernel", "tile"), _reject_tile),))
SPLIT_K = Knob("split_k", CountValues(SPLITS[-1]), rules=(Rule(("kernel", "split_k"), _reject_split),))


# How three templates cut work: parts of ``bespoke``, waves of a kernel of ``pipelined`` or ``forest``, its trees.
#
# Copies of the first and the last are dealt to engines in turn, sums of the other two to streams.

_LISTS = ("parts", "slices", "columns")


def _reject_loads(request: ScheduleRequest) -> Rejection | None:
    if not (request.template.has("parts") and request.scenario.shape.loads):
        return None
    name = request.template.name
    message = f"{name} counts the rows of each peer, the same for every rank, and here they differ"
    return Rejection(Code.MGS515, message, "hetero_fused_1d and pipelined cut what each rank has")


def _reject_unlisted(request: ScheduleRequest) -> Rejection | None:
    choice = request.choice
    lists = () if request.template.has("parts") else (choice.parts, choice.slices, choice.columns)
    if not any(lists) and (request.template.has("lanes") or not choice.lanes):
        return None
    message = f"{choice.template} takes no parts, slices, columns or lanes"
    return Rejection(Code.MGS511, message, "bespoke takes them")


def _reject_parts(request: ScheduleRequest) -> Rejection | None:
    return reject_parts(request.problem) if request.template.has("parts") and request.choice.parts else None


def _reject_cuts(request: ScheduleRequest) -> Rejection | None:
    return reject_cuts(request.problem) if request.template.has("slices") else None


def _reject_lanes(request: ScheduleRequest) -> Rejection | None:
    lanes, engine = request.choice.lanes, request.choice.engine
    return Rejection(Code.MGS401, f"{lanes} lanes of {engine}", "a lane is an engine") if lanes > engine.count else None


PARTS = Knob(
    "parts",
    SizeValues("rows of a part", "parts=[[512, 0], [0, 256], [0, 256]]", shortened, empty=False),
    rules=(
        Rule(("schedules",), _reject_loads),
        Rule(("schedules", *_LISTS, "lanes"), _reject_unlisted),
        Rule(("schedules", "chunks", "parts"), _reject_parts),
    ),
    optional=True,
    explored=False,
)
SLICES = Knob(
    "slices",
    SizeValues("a slice", "slices=[[], [1024, 3072], []]", shortened_cuts),
    rules=(Rule(("schedules", *_LISTS), _reject_cuts),),
    optional=True,
    explored=False,
)
COLUMNS = Knob(
    "columns",
    SizeValues("a band of columns", "columns=[[], [1024, 3072], []]", shortened_cuts),
    optional=True,
    explored=False,
)
LANES = Knob("lanes", CountValues(), rules=(Rule(("engine", "lanes"), _reject_lanes),), optional=True, explored=False)


def _reject_without_waves(request: ScheduleRequest) -> Rejection | None:
    choice = request.choice
    if request.template.has("waves") or choice.waves == choice.sums == 1:
        return None
    return _rejection(f"{choice.template} takes no waves, and no streams for sums", "pipelined takes them")


def _reject_waves(request: ScheduleRequest) -> Rejection | None:
    problem = request.problem
    if problem.waves == 1 or Adds.BLOCKS not in (problem.cutting.adds, problem.then and problem.then.cutting.adds):
        return None
    return _rejection("waves are of different rows, and blocks lie side by side at the same ones", "leave waves out")


def _reject_sums(request: ScheduleRequest) -> Rejection | None:
    choice, pattern = request.choice, request.problem.pattern
    if choice.sums == 1:
        return None
    if not pattern.sums:
        return _rejection(f"{pattern.value} sums nothing", "leave sums out")
    if choice.tactics.kernel is Kernels.PERSISTENT:
        # verify/happens_before.py: a sum that polls for what another passes on may hold the SMs that the other needs.
        why = "sums that follow a persistent kernel wait with SMs held, those of one stream in order"
        return _rejection(why, "sums=1")
    return None


WAVES = Knob(
    "waves",
    CountValues(),
    rules=(Rule(("schedules", "waves", "sums"), _reject_without_waves), Rule(("schedules", "waves"), _reject_waves)),
    optional=True,
)
SUMS = Knob("sums", CountValues(MAX_STREAMS), rules=(Rule(("kernel", "sums"), _reject_sums),), optional=True)


def _reject_trees(request: ScheduleRequest) -> Rejection | None:
    if request.template.has("trees"):
        if request.problem.cutting.adds_ranks:
            why = "kernels of forest take rows of any rank, and here those of each rank add up"
            return _rejection(why, "pipelined takes the rows of each rank by themselves")
        return reject_trees(request.problem)
    return _rejection(f"{request.choice.template} has no trees", "forest has them") if request.choice.trees else None


def _reject_copies(request: ScheduleRequest) -> Rejection | None:
    return reject_copies(request.problem) if request.template.has("trees") else None


def _reject_gets(request: ScheduleRequest) -> Rejection | None:
    if not (request.template.has("trees") and request.problem.gets) or request.problem.pattern.produces:
        return None  # no template gets what kernels made
    return _rejection("forest passes on what came from others, and a get cannot know when its peer has it", "puts")


TREES = Knob(
    "trees",
    SizeValues("a number of a tree", "trees=[[0, 1, 0, 0, 1], [1, 1, 1, 1, 1], [2, 1, 2, 2, 2]]", tuple, empty=False),
    rules=(
        Rule(("schedules", "transfer"), _reject_gets),
        Rule(("schedules", "trees"), _reject_trees),
        Rule(("schedules", "chunks", "trees"), _reject_copies),
    ),
    optional=True,
    explored=False,
)


def _rejection(message: str, hint: str) -> Rejection:
    return Rejection(Code.MGS511, message, hint)
