"""The library's collective as an engine: ``sm(16, library)``, where the profile has the closed form of its time."""

from ...codes import Code
from ...ir import (
    Choice,
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    EngineMode,
    Gpu,
    Pattern,
    Rejection,
    Scenario,
)
from ...templates import BASELINE
from ...templates.collective import collective_in
from .base import Rule, ScheduleRequest

CHANNELS = 16
"""SMs of the library on each GPU, one for each of its channels. Its time alone does not depend on their number."""

_COLLECTIVES = (Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER, Pattern.ALL_REDUCE, Pattern.ALL_TO_ALL)


def library_engine(gpu: Gpu) -> EngineChoice:
    """The usual number of SMs that run the library's collective."""
    return EngineChoice(EngineKind.SM, max(1, min(CHANNELS, gpu.sms // 2)), EngineMode.LIBRARY)


def library_serial(scenario: Scenario) -> Choice:
    """The library's kernels and its collective, one after the other."""
    return Choice(BASELINE.name, scenario.num_ranks, library_engine(scenario.gpu))


def library_rejection(scenario: Scenario) -> Rejection | None:
    """Why the time of the library's collective is not known for ``scenario``, None if it is.

    The closed form holds for one node behind a switch, and for equal blocks.
    """
    gpu, model, workload = scenario.gpu, scenario.gpu.collectives, scenario.workload
    if model is None:
        return _rejection(f"the profile of {gpu.name} has no collectives")
    collective = collective_in(workload.pattern)
    if collective not in _COLLECTIVES:
        return _rejection(f"no closed form of a library for {workload.label}")
    if collective is Pattern.ALL_TO_ALL and model.all_to_all is None:
        return _rejection(f"the profile of {gpu.name} has no all_to_all")
    if workload.uneven:
        return _rejection("the library's time is known for blocks of one size")
    if scenario.system.fabric.one_switch is None or scenario.num_ranks < 2:
        return _rejection("the library's time is known for one node behind a switch")
    return None


def reject_library_plan(engine: EngineChoice) -> Rejection:
    """Why no plan is written out for the library."""
    message = "the library moves everything in one call, and a plan says what is moved when"
    return Rejection(Code.MGS407, message, f"the template serial has engine {engine}")


def _reject_unknown(request: ScheduleRequest) -> Rejection | None:
    return library_rejection(request.scenario) if request.choice.engine.by_library else None


def _reject_template(request: ScheduleRequest) -> Rejection | None:
    name = request.choice.template
    if not request.choice.engine.by_library or name == BASELINE.name:
        return None
    return Rejection(Code.MGS407, f"the library moves everything in one call, {name} does not", "use serial")


def _reject_options(request: ScheduleRequest) -> Rejection | None:
    choice = request.choice
    usual = (Direction.PUT, CopyProtocol.SIMPLE, "")
    if not choice.engine.by_library or usual == (choice.tactics.direction, choice.tactics.protocol, choice.algorithm):
        return None
    message = "the library picks its algorithm and its protocol"
    return Rejection(Code.MGS407, message, "leave algorithm, protocol and transfer out")


def _rejection(message: str) -> Rejection:
    return Rejection(Code.MGS407, message, "copy by dma or by sm(16)")


LIBRARY_RULES = (
    Rule(("engine",), _reject_unknown),
    Rule(("schedules", "engine"), _reject_template),
    Rule(("engine", "algorithm", "transfer", "protocol"), _reject_options),
)
