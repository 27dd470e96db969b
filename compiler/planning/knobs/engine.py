"""Who copies: DMA engines or SMs, how many, and how the schedule gets them."""

from collections.abc import Mapping

from ...codes import Code
from ...ir import EngineChoice, EngineKind, EngineMode, Explore, Gpu, Rejection, Scenario, System, Workload
from .base import EngineValues, Knob, Rule
from .library import LIBRARY_RULES
from .tile_stores import TILE_STORE_RULES

MODES: Mapping[EngineKind, tuple[EngineMode, ...]] = {
    EngineKind.DMA: (EngineMode.PRELAUNCHED, EngineMode.BROADCAST),
    EngineKind.SM: (EngineMode.SHARED, EngineMode.LIBRARY, EngineMode.TILES),
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
    """The numbers of copying SMs that are tried unasked."""
    most = max_copy_sms(gpu)
    counts = [count for count in DEFAULT_COPY_SMS if count <= most] or [max(1, most)]
    return tuple(EngineChoice(EngineKind.SM, count) for count in counts)


def explored_engines(system: System, workload: Workload, explore: Explore) -> Explore:
    """The space of ``explore``: copies by SMs alone where no host knows how much, unless the file says who copies."""
    if not workload.counts_on_device or explore.values(ENGINE.word):
        return explore
    return explore.asking(ENGINE.word, copying_sms(system.gpu))


def usual_engine(system: System, workload: Workload) -> EngineChoice:
    """Who copies in a schedule that nobody wrote: SMs where no host knows how much, else copy engines.

    These SMs copy when kernels leave them, as the kernels of a library do.
    """
    if not workload.counts_on_device or not max_copy_sms(system.gpu):
        return default_engine(system)
    return EngineChoice(EngineKind.SM, min(USUAL_SMS, max_copy_sms(system.gpu)), EngineMode.SHARED)


def reject_engine(gpu: Gpu, engine: EngineChoice) -> Rejection | None:
    """Why the GPU cannot grant ``engine``, None if it can."""
    return _reject_dma(gpu, engine) or _reject_sms(gpu, engine) or _reject_mode(gpu, engine)


def _reject_dma(gpu: Gpu, engine: EngineChoice) -> Rejection | None:
    if engine.kind is not EngineKind.DMA or 1 <= engine.count <= gpu.dma.engines:
        return None
    message = f"{engine.count} DMA engines asked, {gpu.name} has {gpu.dma.engines}"
    return Rejection(Code.MGS401, message, f"use dma({gpu.dma.engines}) or fewer, or dma alone: one for each peer")


def _reject_sms(gpu: Gpu, engine: EngineChoice) -> Rejection | None:
    if engine.kind is EngineKind.SM and engine.by_tiles:
        return _reject_tiles(gpu, engine)
    most = max_copy_sms(gpu)
    if engine.kind is not EngineKind.SM or 1 <= engine.count <= most:
        return None
    message = f"{engine.count} SMs asked for copies, at most {most} of {gpu.name}'s {gpu.sms} may copy"
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


def _asked(scenario: Scenario, kind: EngineKind) -> str:
    engines = [str(engine) for engine in scenario.explore.values("engine") if engine.kind is kind]
    return f"; asked for: {', '.join(engines)}" if engines else ""


def _engines(scenario: Scenario) -> str:
    gpu = scenario.gpu
    return f"{gpu.name} has {gpu.dma.engines} DMA engines{_asked(scenario, EngineKind.DMA)}"


def _share(scenario: Scenario) -> str:
    gpu = scenario.gpu
    share = f"at most {max_copy_sms(gpu)} of {gpu.name}'s {gpu.sms} SMs may copy"
    return f"{share}{_asked(scenario, EngineKind.SM)}"


ENGINE = Knob(
    "engine",
    "engine",
    EngineValues(),
    None,
    rules=(
        Rule(("engine",), lambda request: _reject_dma(request.scenario.gpu, request.choice.engine), _engines),
        Rule(("engine",), lambda request: _reject_sms(request.scenario.gpu, request.choice.engine), _share),
        Rule(("engine",), lambda request: _reject_mode(request.scenario.gpu, request.choice.engine)),
        *LIBRARY_RULES,
        *TILE_STORE_RULES,
    ),
)
