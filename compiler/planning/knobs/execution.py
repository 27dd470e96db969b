"""How a schedule is carried out: the knobs whose values are in ``ExecutionOptions``."""

from ...codes import Code
from ...ir import (
    CopyProtocol,
    Direction,
    EngineKind,
    Kernels,
    LaunchMode,
    OpShape,
    Rejection,
    Wait,
    WaitPer,
)
from ...text.diagnostics import listing
from .base import Knob, Rule, ScheduleRequest, TileValues, WordValues, value_text

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
    "direction",
    WordValues(Direction),
    Direction.PUT,
    rules=(Rule(("schedules", "transfer"), _reject_get),),
    option=True,
    of_transfers=True,
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
    "protocol",
    "protocol",
    WordValues(CopyProtocol),
    CopyProtocol.SIMPLE,
    rules=(Rule(("engine", "protocol"), _reject_protocol),),
    option=True,
    of_transfers=True,
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
    "kernel",
    WordValues(Kernels),
    Kernels.LAUNCHED,
    rules=(Rule(("kernel",), _reject_persistent), Rule(("kernel", "streams"), _reject_sharing)),
    option=True,
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


WAIT = Knob(
    "wait",
    "wait",
    WordValues(Wait),
    Wait.EVENT,
    rules=(Rule(("kernel", "wait"), _reject_wait), Rule(("wait",), _reject_monitor)),
    option=True,
)


def _reject_per(request: ScheduleRequest) -> Rejection | None:
    tactics = request.choice.tactics
    if tactics.per is WaitPer.CHUNK or tactics.kernel is Kernels.PERSISTENT:
        return None
    return Rejection(Code.MGS513, "only a persistent kernel looks again for each tile", "say kernel=persistent")


PER = Knob("per", "per", WordValues(WaitPer), WaitPer.CHUNK, rules=(Rule(("kernel", "per"), _reject_per),), option=True)
LAUNCH = Knob("launch", "launch", WordValues(LaunchMode), LaunchMode.STREAM, option=True)


def _reject_tile(request: ScheduleRequest) -> Rejection | None:
    tile, shape, gpu = request.choice.tactics.tile, request.scenario.shape, request.scenario.gpu
    if not tile:
        return None
    if request.choice.tactics.kernel is not Kernels.PERSISTENT:
        message = "only a persistent kernel is told its tile: what is launched is the library's, which picks it"
        return Rejection(Code.MGS513, message, "say kernel=persistent, or leave tile out")
    if shape.gemm is None or shape.gemm.n == 1:
        message = f"{shape.label} has no GEMM with more than one column, and nothing else has tiles"
        return Rejection(Code.MGS513, message, "leave tile out")
    known = [value_text(block) for block, _ in gpu.tiles_of(shape.gemm.dtype)]
    if value_text(tile) in known:
        return None
    message = f"the times of tiles of {tile[0]} x {tile[1]} are not known on {gpu.name}"
    return Rejection(Code.MGS513, message, f"its tiles are {listing(known)}")


TILE = Knob("tile", "tile", TileValues(), (), rules=(Rule(("kernel", "tile"), _reject_tile),), option=True)
