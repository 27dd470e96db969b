"""Who copies: DMA engines or SMs, how many, and how the schedule gets them.

With ``sm(tiles)`` each tile of one persistent kernel stores what it has computed, or its SM pulls what the tile reads;
nothing else is copied.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from ...codes import Code
from ...ir import (
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    EngineMode,
    Explore,
    Gpu,
    Kernels,
    OpCase,
    OpShape,
    Reach,
    Rejection,
    Step,
    System,
    Transfer,
    kernels_that_pull,
    kernels_that_store,
)
from ...templates import BASELINE
from ...templates.collective import reject_algorithm
from .base import EngineValues, Knob, Rule, ScheduleRequest
from .library import LIBRARY_RULES, exchange_on, library_engine


def tiles_engine(gpu: Gpu) -> EngineChoice:
    """All SMs, each storing or pulling for its tiles."""
    return EngineChoice(EngineKind.SM, gpu.sms, EngineMode.TILES)


def reject_not_stored(steps: Collection[Step]) -> tuple[str, Rejection] | None:
    """The first transfer of ``steps`` that no tile can store or pull, and why; None if tiles move all of them.

    What a switch sums or copies the kernel asks of it, whichever tile computed that.
    """
    kernels = {step.name for step in steps if not isinstance(step, Transfer)}
    stored = kernels_that_store(steps).keys() | kernels_that_pull(steps).keys()
    for step in steps:
        if not isinstance(step, Transfer) or step.reach is Reach.ALL or step.name in stored:
            continue
        other = next((name for name in step.after if name not in kernels), None)
        message = f"{step.name} moves what no kernel before it has computed, and tiles store nothing else"
        if step.direction is Direction.GET:
            message = f"{step.name} is not pulled: no kernel of its rows waits for it, or it waits itself"
        elif other is not None:
            message = f"{step.name} waits for {other}, and a tile stores when it is done"
        return step.name, Rejection(Code.MGS407, message, "copy by dma or by sm(16)")
    return None


def _reject_kernel(request: ScheduleRequest) -> Rejection | None:
    choice = request.choice
    if not choice.engine.by_tiles or choice.tactics.kernel is Kernels.PERSISTENT:
        return None
    return Rejection(Code.MGS407, "tiles store from inside a persistent kernel", "say kernel=persistent")


def _reject_protocol(request: ScheduleRequest) -> Rejection | None:
    choice = request.choice
    if not choice.engine.by_tiles or choice.tactics.protocol is CopyProtocol.SIMPLE:
        return None
    return Rejection(Code.MGS407, "tiles store data and then a flag, as protocol simple", "leave protocol out")


def _reject_pattern(request: ScheduleRequest) -> Rejection | None:
    shape = request.scenario.shape
    if not request.choice.engine.by_tiles or (shape.pattern.produces and shape.then is None):
        return None
    pulls = shape.pattern.consumes and shape.then is None
    if pulls and request.template is BASELINE:
        message = "serial waits for all that moves, and tiles pull row by row"
        return Rejection(Code.MGS407, message, "another template, such as hetero_unfused_1d")
    if pulls and request.choice.tactics.direction is Direction.GET:
        return None
    message = f"tiles store what a GEMM has computed, and {shape.label} moves what was there before"
    return Rejection(Code.MGS407, message, "tiles pull that: transfer=get" if pulls else "copy by dma or by sm(16)")


def _reject_steps(request: ScheduleRequest) -> Rejection | None:
    if not request.choice.engine.by_tiles:
        return None
    template, problem = request.template, replace(request.problem, pieces=request.template.min_pieces)
    if template.default_algorithm and reject_algorithm(problem, template.default_algorithm) is not None:
        return None  # what the algorithm cannot do is not written
    steps, by_rank = template.write(problem)
    found = (reject_not_stored(each) for each in by_rank or (steps,))
    return next((unfit[1] for unfit in found if unfit is not None), None)


TILE_STORE_RULES = (
    Rule(("engine", "kernel"), _reject_kernel),
    Rule(("engine", "protocol"), _reject_protocol),
    Rule(("schedules", "engine", "transfer"), _reject_pattern),
    Rule(("schedules", "engine", "algorithm", "transfer"), _reject_steps),
)


def reject_loop(engine: EngineChoice, direction: Direction) -> Rejection | None:
    """Why work-groups of ``engine`` make no copies of that direction, None if they do."""
    if engine.kernel is None or engine.kernel.loop(direction) is not None:
        return None
    word = direction.value
    message = f"{engine.kernel.name} does not say what its work-groups do to {word}"
    return Rejection(Code.MGS411, message, f"in the kernel: {word} {{ load 16; store }}")


def reject_groups(engine: EngineChoice, protocol: CopyProtocol, shape: OpShape) -> Rejection | None:
    """Why work-groups of ``engine`` do not copy for ``shape``, None if they do."""
    if engine.kernel is None:
        return None
    name = engine.kernel.name
    if protocol is not CopyProtocol.SIMPLE:
        message = f"work-groups of {name} store data and then a flag, as protocol simple"
        return Rejection(Code.MGS411, message, "leave protocol out, or copy by sm(16)")
    if engine.kernel.sums and not shape.pattern.sums:
        message = f"{name} adds up what it gets, and {shape.label} sums nothing"
        return Rejection(Code.MGS411, message, "get { load 16; store }")
    return None


def _reject_groups(request: ScheduleRequest) -> Rejection | None:
    engine, tactics = request.choice.engine, request.choice.tactics
    return reject_groups(engine, tactics.protocol, request.scenario.shape)


def _reject_direction(request: ScheduleRequest) -> Rejection | None:
    return reject_loop(request.choice.engine, request.choice.tactics.direction)


def _reject_ports(request: ScheduleRequest) -> Rejection | None:
    if request.choice.engine.mode is not EngineMode.PORTS or request.scenario.system.fabric.node_size:
        return None
    message = f"ports lead out of a node, and all {request.scenario.num_ranks} GPUs are in one"
    return Rejection(Code.MGS407, message, "copy by dma or by sm(16)")


MODES: Mapping[EngineKind, tuple[EngineMode, ...]] = {
    EngineKind.DMA: (EngineMode.PRELAUNCHED, EngineMode.BROADCAST, EngineMode.CHANNELS),
    EngineKind.SM: (EngineMode.SHARED, EngineMode.LIBRARY, EngineMode.TILES, EngineMode.CHANNELS, EngineMode.PORTS),
}
# SMs that copy are taken from the kernels; more than half of them is no overlap schedule any more.
MAX_COPY_SHARE = 2
# A copy by few SMs costs little compute and by many is fast; the best of these three is near the best of all.
DEFAULT_COPY_SMS = (8, 16, 32)
USUAL_SMS = 16
"""SMs that copy in a schedule that nobody wrote, where copy engines cannot."""


def max_copy_sms(gpu: Gpu) -> int:
    """SMs that may be taken from the kernels."""
    return gpu.sms // MAX_COPY_SHARE


def default_engine(system: System) -> EngineChoice:
    """One copy engine for each peer, as far as the GPU has that many."""
    return EngineChoice(EngineKind.DMA, max(1, min(system.gpu.dma.engines, system.num_ranks - 1)))


def copying_sms(gpu: Gpu) -> tuple[EngineChoice, ...]:
    """The numbers of copying SMs that are tried by default."""
    most = max_copy_sms(gpu)
    counts = [count for count in DEFAULT_COPY_SMS if count <= most] or [max(1, most)]
    return tuple(EngineChoice(EngineKind.SM, count) for count in counts)


def explored_engines(system: System, shape: OpShape, explore: Explore) -> Explore:
    """The space of ``explore``: copies by SMs alone where no host knows how much, unless the file says who copies."""
    if not shape.counts_on_device or explore.values(ENGINE.word):
        return explore
    return explore.asking(ENGINE.word, copying_sms(system.gpu))


def usual_engine(system: System, shape: OpShape) -> EngineChoice:
    """Who copies in a schedule that nobody wrote: SMs where no host knows how much, else copy engines.

    These SMs copy when kernels leave them, as the kernels of a library do. Rows go to experts by a framework's kernels,
    where these are known.
    """
    if exchange_on(system, shape) is not None:
        return library_engine(system.gpu)
    if not shape.counts_on_device or not max_copy_sms(system.gpu):
        return default_engine(system)
    return EngineChoice(EngineKind.SM, min(USUAL_SMS, max_copy_sms(system.gpu)), EngineMode.SHARED)


def reject_engine(gpu: Gpu, engine: EngineChoice) -> Rejection | None:
    """Why the GPU cannot grant ``engine``, None if it can."""
    return _reject_dma(gpu, engine) or _reject_sms(gpu, engine) or _reject_mode(gpu, engine)


def _reject_dma(gpu: Gpu, engine: EngineChoice) -> Rejection | None:
    if engine.kind is not EngineKind.DMA or 1 <= engine.count <= gpu.dma.engines:
        return None
    message = f"{engine.count} DMA engines are requested, {gpu.name} has {gpu.dma.engines}"
    return Rejection(Code.MGS401, message, f"use dma({gpu.dma.engines}) or fewer, or dma alone: one for each peer")


def _reject_sms(gpu: Gpu, engine: EngineChoice) -> Rejection | None:
    if engine.kind is EngineKind.SM and engine.by_tiles:
        return _reject_tiles(gpu, engine)
    most = max_copy_sms(gpu)
    if engine.kernel is not None and engine.count > most:
        message = f"{engine.kernel.name} has {engine.count} work-groups, at most {most} of {gpu.name}'s {gpu.sms} SMs "
        return Rejection(Code.MGS401, f"{message}may copy, each for one", f"groups {most}, or fewer")
    if engine.kind is not EngineKind.SM or 1 <= engine.count <= most:
        return None
    message = f"{engine.count} SMs are requested for copies, at most {most} of {gpu.name}'s {gpu.sms} may copy"
    return Rejection(Code.MGS401, message, f"use sm({most}) or fewer" if most else "copy by dma")


def _reject_tiles(gpu: Gpu, engine: EngineChoice) -> Rejection | None:
    if engine.count == gpu.sms:
        return None
    message = f"tiles run on {engine.count} SMs, {gpu.name} has {gpu.sms}"
    return Rejection(Code.MGS401, message, "sm(tiles) is all SMs of the GPU")


def _reject_mode(gpu: Gpu, engine: EngineChoice) -> Rejection | None:
    if engine.mode is EngineMode.OWN or engine.mode in MODES[engine.kind]:
        return None
    known = ", ".join(mode.value for mode in MODES[engine.kind])
    return Rejection(
        Code.MGS407, f"{engine.kind.value} of {gpu.name} is never {engine.mode.value}", f"it may be: {known}"
    )


def _requested(scenario: OpCase, kind: EngineKind) -> str:
    engines = [str(engine) for engine in scenario.explore.values("engine") if engine.kind is kind]
    return f"; requested: {', '.join(engines)}" if engines else ""


def _engines(scenario: OpCase) -> str:
    gpu = scenario.gpu
    return f"{gpu.name} has {gpu.dma.engines} DMA engines{_requested(scenario, EngineKind.DMA)}"


def _share(scenario: OpCase) -> str:
    gpu = scenario.gpu
    share = f"at most {max_copy_sms(gpu)} of {gpu.name}'s {gpu.sms} SMs may copy"
    return f"{share}{_requested(scenario, EngineKind.SM)}"


ENGINE = Knob(
    "engine",
    EngineValues(),
    rules=(
        Rule(("engine",), lambda request: _reject_dma(request.scenario.gpu, request.choice.engine), _engines),
        Rule(("engine",), lambda request: _reject_sms(request.scenario.gpu, request.choice.engine), _share),
        Rule(("engine",), lambda request: _reject_mode(request.scenario.gpu, request.choice.engine)),
        Rule(("engine", "protocol"), _reject_groups),
        # Of a plan written out each transfer is asked about.
        Rule(("schedules", "engine", "transfer"), _reject_direction),
        Rule(("engine",), _reject_ports),
        *LIBRARY_RULES,
        *TILE_STORE_RULES,
    ),
)
