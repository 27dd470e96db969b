"""Stores from tiles as an engine: ``sm(tiles)``, where every copy moves what one persistent kernel has computed."""

from collections.abc import Collection
from dataclasses import replace

from ...codes import Code
from ...ir import (
    CopyProtocol,
    EngineChoice,
    EngineKind,
    EngineMode,
    Gpu,
    Kernels,
    Reach,
    Rejection,
    Step,
    Transfer,
    kernels_that_store,
)
from ...templates.collective import reject_algorithm
from .base import Rule, ScheduleRequest


def tiles_engine(gpu: Gpu) -> EngineChoice:
    """All SMs, each storing its tiles."""
    return EngineChoice(EngineKind.SM, gpu.sms, EngineMode.TILES)


def reject_not_stored(steps: Collection[Step]) -> tuple[str, Rejection] | None:
    """The first transfer of ``steps`` that no tile can store, and why; None if tiles store all of them.

    What a switch sums or copies the kernel asks of it, whichever tile computed that.
    """
    kernels = {step.name for step in steps if not isinstance(step, Transfer)}
    stored = kernels_that_store(steps)
    for step in steps:
        if not isinstance(step, Transfer) or step.reach is Reach.ALL or step.name in stored:
            continue
        other = next((name for name in step.after if name not in kernels), None)
        message = f"{step.name} moves what no kernel before it has computed, and tiles store nothing else"
        if other is not None:
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
    workload = request.scenario.workload
    if not request.choice.engine.by_tiles or (workload.pattern.produces and workload.then is None):
        return None
    message = f"tiles store what a GEMM has computed, and {workload.label} moves what was there before"
    return Rejection(Code.MGS407, message, "copy by dma or by sm(16)")


def _reject_steps(request: ScheduleRequest) -> Rejection | None:
    template, problem = request.template, replace(request.problem, pieces=request.template.min_pieces)
    if not request.choice.engine.by_tiles or (
        template.default_algorithm and reject_algorithm(problem, template.default_algorithm) is not None
    ):
        return None  # what the algorithm cannot do is not written
    steps, by_rank = template.write(problem)
    found = (reject_not_stored(each) for each in by_rank or (steps,))
    return next((unfit[1] for unfit in found if unfit is not None), None)


TILE_STORE_RULES = (
    Rule(("engine", "kernel"), _reject_kernel),
    Rule(("engine", "protocol"), _reject_protocol),
    Rule(("schedules", "engine"), _reject_pattern),
    Rule(("schedules", "engine", "algorithm"), _reject_steps),
)
