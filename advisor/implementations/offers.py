"""What a user can switch on today: the implementations known for a scenario, each with its gain over the library."""

from dataclasses import dataclass

from ...compiler.ir import TICKS_PER_US, Implementation, Rejection, Scenario, TransferPath
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.resolve.schedules.implementation import shipped_implementations
from ...compiler.text.quantities import us_text
from .predict import predict_us
from .promise import Promise


@dataclass(frozen=True, slots=True)
class Offer:
    """One implementation on a scenario: its predicted time, and what its gain over the library promises.

    ``asked`` is whether the file names it.
    """

    name: str
    us: float
    promise: Promise
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """An implementation that the file names and that has no prediction here, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Offers:
    """The time of the library in us, None if it is not known, and the implementations, the fastest first."""

    library: str
    library_us: float | None
    offers: tuple[Offer, ...]
    unknown: tuple[Unknown, ...] = ()

    @property
    def paying(self) -> tuple[Offer, ...]:
        """The implementations that are faster than the library beyond their error, the fastest first."""
        return tuple(offer for offer in self.offers if offer.promise.verdict is Verdict.OVERLAP)


def offers_of(scenario: Scenario) -> Offers | None:
    """Return what is known of implementations here, None if that is nothing.

    The file's are taken where it names some, else those that ship for this GPU, this type and this pattern. Without a
    time of the library there is nothing to compare them with.
    """
    shipped = shipped_implementations(scenario.system)
    library = next(each for each in shipped if _is_library(each))
    library_us = predict_us(scenario, library)
    asked = scenario.explore.implementations
    if isinstance(library_us, Rejection):
        why = tuple(Unknown(each.name, library_us.message) for each in asked)
        return Offers(library.name, None, (), why) if asked else None
    offers: list[Offer] = []
    unknown: list[Unknown] = []
    for implementation in asked or (each for each in shipped if _is_offered(each, scenario)):
        us = predict_us(scenario, implementation)
        if not isinstance(us, Rejection):
            offers.append(_offer(scenario, implementation, us, library_us))
        elif asked:
            unknown.append(Unknown(implementation.name, us.message))
    if not offers and not unknown:
        return None
    return Offers(library.name, library_us, tuple(sorted(offers, key=lambda each: each.us)), tuple(unknown))


def _offer(scenario: Scenario, implementation: Implementation, us: float, library_us: float) -> Offer:
    method = implementation.method(scenario.workload.pattern)
    error = None if method is None or method.error is None else float(method.error)
    promise = Promise(library_us / us, error, _outside(scenario, implementation, us))
    return Offer(implementation.name, us, promise, bool(scenario.explore.implementations))


def _outside(scenario: Scenario, implementation: Implementation, us: float) -> str:
    """Why the numbers of an implementation were not measured for the like of this; empty if they were."""
    method = implementation.method(scenario.workload.pattern)
    if scenario.gpu.name not in implementation.gpus:
        return f"known for {', '.join(implementation.gpus) or 'no GPU'}"
    if method is not None and us * TICKS_PER_US < method.shortest_ticks:
        return f"measured from {us_text(method.shortest_ticks / TICKS_PER_US)} on"
    return ""


def _is_library(implementation: Implementation) -> bool:
    return any(method.path is TransferPath.LIBRARY for method in implementation.methods)


def _is_offered(implementation: Implementation, scenario: Scenario) -> bool:
    """Whether it is offered unasked: it is known for this GPU, type and pattern, and is not the library."""
    method, workload = implementation.method(scenario.workload.pattern), scenario.workload
    if method is None or method.missing or method.path is TransferPath.LIBRARY:
        return False
    dtype = None if workload.gemm is None else workload.gemm.dtype
    return scenario.gpu.name in implementation.gpus and dtype in implementation.dtypes
