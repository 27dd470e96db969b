"""The library's collective as an engine: ``sm(16, library)``, where the profile has the closed form of its time."""

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from ...codes import Code
from ...ir import (
    Collectives,
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    EngineMode,
    ExchangeKernel,
    Gpu,
    OpCase,
    OpChoice,
    OpShape,
    Pattern,
    ProtocolModel,
    Rejection,
    SumForm,
    System,
)
from ...templates import BASELINE
from ...templates.collective import collective_in
from ...text.units import rate_text, ticks_text
from .base import Rule, ScheduleRequest

CHANNELS = 16
"""SMs of the library on each GPU, one for each of its channels. Its time alone does not depend on their number."""

MOST_LATENCY = 2
"""Links that have more than this many times the latency of those that constants were fitted on are of another kind."""

_COLLECTIVES = (Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER, Pattern.ALL_REDUCE, Pattern.ALL_TO_ALL)


def library_engine(gpu: Gpu) -> EngineChoice:
    """The usual number of SMs that run the library's collective."""
    return EngineChoice(EngineKind.SM, max(1, min(CHANNELS, gpu.sms // 2)), EngineMode.LIBRARY)


def library_serial(scenario: OpCase) -> OpChoice:
    """The library's kernels and its collective, one after the other."""
    return OpChoice(BASELINE.name, scenario.num_ranks, library_engine(scenario.gpu))


def library_rejection(scenario: OpCase) -> Rejection | None:
    """Why the time of the library's collective is not known for ``scenario``, None if it is.

    The closed form holds for one node, behind a switch or in a full mesh as it was fitted, and for equal blocks.
    """
    gpu, model, shape = scenario.gpu, scenario.gpu.collectives, scenario.shape
    if model is None:
        return _rejection(f"the profile of {gpu.name} has no collectives")
    collective = collective_in(shape.pattern)
    if collective not in _COLLECTIVES:
        return _rejection(f"no closed form of a library for {shape.label}")
    if collective is Pattern.ALL_TO_ALL and model.all_to_all is None and exchange_on(scenario.system, shape) is None:
        return _rejection(f"the profile of {gpu.name} has no all_to_all")
    if shape.uneven:
        return _rejection("the library's time is known for blocks of one size")
    if not scenario.system.fabric.direct or scenario.num_ranks < 2:
        return _rejection(f"the library's time is known for one node {_fitted_in(model)}")
    return _reject_links(scenario.system, model)


def library_scaling(system: System) -> str:
    """How the library's times are scaled to links and a switch that they were not fitted on; empty if they are not."""
    model, (rate, latency) = system.gpu.collectives, _links_of(system)
    if model is None:
        return ""
    changes: list[str] = []
    if model.link_bytes_per_s not in (None, rate):
        changes.append(f"from links of {rate_text(model.link_bytes_per_s or 0)} to {rate_text(rate)}")
    if model.links not in (None, links_out(system)):
        changes.append(f"from {model.links} links of a GPU to {links_out(system)}")
    if model.link_latency_ticks is not None and latency > model.link_latency_ticks:
        changes.append(f"from a latency of {ticks_text(model.link_latency_ticks)} to {ticks_text(latency)}")
    region = system.gpu.calibrated.collectives
    if region is not None and system.num_ranks > region.ranks[-1]:
        changes.append(f"from {region.ranks[-1]} GPUs to {system.num_ranks}")
    return " and ".join(changes)


def exchange_on(system: System, shape: OpShape) -> ExchangeKernel | None:
    """The framework's kernel that makes a dispatch or a combine on ``system``; None if the library itself does."""
    library = library_on(system) if shape.routing is not None else None
    return None if library is None else library.exchange(back=shape.back)


@lru_cache(maxsize=64)
def library_on(system: System) -> Collectives | None:
    """The library's constants on the links and the switch of ``system``; None if they hold for another kind of link.

    Over slower or faster links the rates of SIMPLE and NVLS are scaled; those of the other protocols, which the links
    do not limit, are at most that. Only a switch that sums does NVLS, or sums for a framework's kernel.
    """
    model, (rate, latency) = system.gpu.collectives, _links_of(system)
    if model is None or not system.fabric.direct or _reject_links(system, model) is not None:
        return None
    links = links_out(system)
    fitted = None if model.link_bytes_per_s is None else model.link_bytes_per_s * (model.links or 1)
    share = Fraction(1) if fitted is None else Fraction(rate * links, fitted)
    later = 0 if model.link_latency_ticks is None else max(0, latency - model.link_latency_ticks)
    link, switch, nvls, exchange = system.fabric.link, system.fabric.switch, model.nvls, model.all_to_all
    sums = switch is not None and switch.multicast and switch.reduces
    peak = link.peak_bytes_per_s * links if switch is None else min(link.peak_bytes_per_s, switch.bytes_per_s)
    if nvls is not None:
        nvls = replace(nvls, bytes_per_s=int(share * nvls.bytes_per_s)) if sums else None
    if exchange is not None:
        ll, ll128, simple = _scaled((exchange.ll, exchange.ll128, exchange.simple), share, peak, later)
        exchange = replace(exchange, ll=ll, ll128=ll128, simple=simple)
    ll, ll128, simple = _scaled((model.ll, model.ll128, model.simple), share, peak, later)
    kernels = tuple(
        replace(each, bytes_per_s=int(share * each.bytes_per_s))
        for each in model.kernels
        if sums or each.form is not SumForm.IN_SWITCH
    )
    routed = tuple(replace(each, bytes_per_s=int(share * each.bytes_per_s)) for each in model.routed)
    own = replace(model, kernels=kernels, routed=routed)
    return replace(own, ll=ll, ll128=ll128, simple=simple, nvls=nvls, all_to_all=exchange)


def _scaled(protocols: tuple[ProtocolModel, ...], share: Fraction, peak: int, later_ticks: int) -> list[ProtocolModel]:
    """LL, LL128 and SIMPLE over links of another rate, at most ``peak``, ``later_ticks`` later in each step."""
    most = min(peak, int(share * protocols[-1].bytes_per_s))
    rates = (*(min(each.bytes_per_s, most) if share != 1 else each.bytes_per_s for each in protocols[:-1]), most)
    return [
        replace(each, bytes_per_s=rate, step_ticks=each.step_ticks + later_ticks)
        for each, rate in zip(protocols, rates, strict=True)
    ]


def links_out(system: System) -> int:
    """Links over which the library sends at once: all of a GPU in a full mesh, which its rings share, else one."""
    return max(1, system.num_ranks - 1) if system.fabric.link_for_each_pair else 1


def _fitted_in(model: Collectives) -> str:
    return "behind a switch" if model.links is None else "with a link for each pair of GPUs"


def _links_of(system: System) -> tuple[int, int]:
    """What a GPU sends over one link, to the switch or to a peer, and the latency from GPU to GPU."""
    link, switch = system.fabric.link, system.fabric.switch
    if switch is None:
        return link.achieved_bytes_per_s, link.latency_ticks
    return min(link.achieved_bytes_per_s, switch.bytes_per_s), 2 * link.latency_ticks + switch.latency_ticks


def _reject_links(system: System, model: Collectives) -> Rejection | None:
    """Why the constants do not hold for the links of ``system``, however they are scaled."""
    link, (_, latency) = system.fabric.link, _links_of(system)
    if system.fabric.link_for_each_pair != (model.links is not None):
        return _rejection(f"the library's time is known for one node {_fitted_in(model)}")
    if model.links is None and model.link_bytes_per_s is not None and CopyProtocol.LL128 not in link.protocols:
        return _rejection(f"the library's times were measured over links that carry LL128, and {link.name} does not")
    fitted = model.link_latency_ticks
    if fitted is not None and latency > MOST_LATENCY * fitted:
        known = f"the library's time is known over links that take {ticks_text(fitted)} from GPU to GPU"
        return _rejection(f"{known}; over {link.name} it takes {ticks_text(latency)}")
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
