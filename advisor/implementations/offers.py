"""What a user can switch on today: the implementations known for a scenario, each with its gain over the library.

Of several ops one after the other the times add up: those that an implementation does by it, all others by the library.
Implementations with an order of their own for whole layers are simulated as schedules are.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...compiler.codes import Code
from ...compiler.ir import (
    TICKS_PER_US,
    DType,
    Implementation,
    Kernels,
    OpCase,
    OpChoice,
    OpShape,
    Pattern,
    Rejection,
    Scenario,
    Schedule,
)
from ...compiler.planning.build import ScheduleError
from ...compiler.planning.knobs.engine import usual_engine
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.resolve.schedules.implementation import shipped_implementations
from ...compiler.resolve.schedules.implementation_blocks import not_measured
from ...compiler.templates import BASELINE
from ...compiler.text.units import us_text
from ...simcore import RunTooLarge
from ...simcore.kernels.gemm import gemm_work
from .fused_experts import chains_of, fused_us, reject_chain, saved_us
from .predict import CallTimes, Promise, about_kernels, call_times, error_of, library_us, simulated_us, widened


@dataclass(frozen=True, slots=True)
class OpSetting:
    """What is switched on for one op: ``layer`` and ``method`` are the words of the implementation.

    ``copy_engine`` is whether copy engines move the data; else ``num_sm`` SMs do. ``num_splits`` is 0 where a method
    has none.
    """

    layer: str
    op: str
    method: str
    num_sm: int = 0
    num_splits: int = 0
    copy_engine: bool = False


@dataclass(frozen=True, slots=True)
class LayerTable:
    """Settings of an implementation for a workload, and the schedule that follows; ``flags`` are beside the file."""

    choice: Schedule
    settings: tuple[OpSetting, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """The best table of an implementation that carries out a whole layer in an order of its own.

    ``ticks`` are of all layers, by the best known simulation. ``extra_ticks`` are what it costs beside the schedule, in
    all layers: SMs that copies take from kernels. ``unknown`` says of which costs nothing is known, empty if of none.
    """

    implementation: str
    about: str
    table: LayerTable
    ticks: int
    extra_ticks: int = 0
    unknown: str = ""

    @property
    def all_ticks(self) -> int:
        """The time of all layers with what is not in the schedule."""
        return self.ticks + self.extra_ticks

    @property
    def schedule(self) -> str:
        """The name of its schedule among the candidates."""
        return self.table.choice.name


DIRECT = "the direct exchange"
"""What orders of whole layers are compared with where the library is not known."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One implementation on a scenario: its time for all layers, and what its gain over the library promises.

    ``requested`` is whether the file names it. ``ops`` are those that it carries out, the library all others; ``order``
    is that of the whole layer, where it has one. ``about`` says what its own kernels do, empty if it has none.
    ``saved_us`` is what memory saves by weights of fewer bits than those of the file, which no bound of the file knows.
    ``is_kernel`` is whether it is one kernel that waits for copies or makes them, as a kernel for a plan is.
    """

    name: str
    us: float
    promise: Promise
    requested: bool = False
    ops: tuple[str, ...] = ()
    order: Order | None = None
    about: str = ""
    saved_us: float = 0.0
    is_kernel: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """An implementation that the file names and that has no prediction here, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Offers:
    """The time of the library in us, None if it is not known, and the implementations, the fastest first.

    ``unrequested`` are the other kernels that ship for the only op that moves data, if the file names implementations.
    """

    library: str
    library_us: float | None
    offers: tuple[Offer, ...]
    unknown: tuple[Unknown, ...] = ()
    unrequested: tuple[Offer, ...] = ()

    @property
    def paying(self) -> tuple[Offer, ...]:
        """The implementations that pay over the library: those of measured error first, each kind the fastest first."""
        pays = (offer for offer in self.offers if offer.promise.pays)
        return tuple(sorted(pays, key=lambda offer: offer.promise.verdict is not Verdict.OVERLAP))

    @property
    def best_if_none_gains(self) -> Promise | None:
        """That of the kernels that ship for this which has most at least; None without any, or if one gains.

        It gains if it is predicted to by whatever call. Beside kernels that were measured at such sizes others, which
        were not, say nothing.
        """
        shipped = [each.promise for each in (*self.offers, *self.unrequested) if each.is_kernel and not each.requested]
        known = [promise for promise in shipped if not promise.outside] or shipped
        if any(promise.verdict is not Verdict.SERIAL for promise in known):
            return None
        return max(known, key=lambda promise: promise.least, default=None)

    def without(self, names: Collection[str]) -> "Offers":
        """Return the same without the implementations of these names."""
        offers, unrequested = (
            tuple(each for each in kind if each.name not in names) for kind in (self.offers, self.unrequested)
        )
        return replace(self, offers=offers, unrequested=unrequested)

    def fastest_us(self, family: str) -> float:
        """The time of the library, or of implementations whose names begin so where they are faster; none if empty."""
        own = [offer.us for offer in self.offers if family and offer.name.startswith(family)]
        return min([self.library_us or 0.0, *own])

    def named(self, name: str) -> Offer | None:
        """What is known of an implementation, None if nothing is."""
        return next((offer for offer in self.offers if offer.name == name), None)


def offers_of(scenario: Scenario, orders: Sequence[Order] = (), only: Sequence[str] = ()) -> Offers | None:
    """Return what is known of implementations here, None if that is nothing; ``only`` of those whose names begin so.

    The file's are taken where it names some, else those that ship for this GPU, and the type and pattern of an op.
    Without a time of the library there is nothing to compare them with but the direct exchange, which ``orders`` of
    whole layers are.
    """
    shipped = shipped_implementations(scenario.system)
    library = _Library.of(shipped)
    moving, named = scenario.moving, {each.implementation for each in orders}
    requested = [each for each in scenario.explore.implementations if each.name not in named]
    unfit = [why for case in moving if isinstance(why := library.predicted(case), Rejection)]
    fits = len(unfit) < len(moving)
    if not fits and not orders:
        left_out = tuple(Unknown(each.name, unfit[0].message) for each in requested) if unfit else ()
        return Offers(library.name, None, (), left_out) if left_out else None
    base = CallTimes.sum(library.times(case) for case in scenario.cases)
    offers = [_of_order(each, scenario, base) for each in orders]
    unknown: list[Unknown] = []
    for implementation in (requested or shipped) if fits else ():
        if implementation.name == scenario.exchange or not implementation.name.startswith(tuple(only) or ""):
            continue
        offer = _offer if implementation.experts is None else _offer_of_experts
        found, reason = offer(scenario, implementation, library, base)
        if found is not None:
            offers.append(found)
        if reason is not None and (requested or reason.code is Code.MGS530):
            unknown.append(Unknown(implementation.name, reason.message))
    if not offers and not unknown and not only:
        return None
    name = (library.name if fits else DIRECT) + (f" with {scenario.exchange}" if scenario.exchange else "")
    unrequested: list[Offer] = []
    if scenario.explore.implementations and len(moving) == 1 and fits:
        bare = replace(scenario, explore=replace(scenario.explore, implementations=()))
        found_unrequested = (_offer(bare, each, library, base)[0] for each in shipped if each.name != scenario.exchange)
        unrequested = [each for each in found_unrequested if each and each.is_kernel]
    by_time = [tuple(sorted(each, key=lambda offer: offer.us)) for each in (offers, unrequested)]
    return Offers(name, base.us * scenario.num_layers, by_time[0], tuple(unknown), by_time[1])


@dataclass(frozen=True, slots=True)
class ByLibrary:
    """All layers, one op after the other: in us as called, in a CUDA graph, and of the latter what nothing hides.

    ``moving_us`` is how much longer ops take than their kernels alone; None where these are not known.
    """

    us: float
    graph_us: float
    moving_us: float | None


def by_library(scenario: Scenario) -> ByLibrary:
    """Return the time by the library; ops that it does not know go by the direct exchange.

    Raises
    ------
    RunTooLarge
        If an op of these is too large to be simulated.
    """
    library = _Library.of(shipped_implementations(scenario.system))
    one, layers = CallTimes.sum(library.times(case) for case in scenario.cases), scenario.num_layers
    kernels = [_kernel_us(case) for case in scenario.moving]
    moving = sum(library.times(case).graph_us for case in scenario.moving) - sum(filter(None, kernels))
    return ByLibrary(one.us * layers, one.graph_us * layers, None if None in kernels else moving * layers)


def _kernel_us(case: OpCase) -> float | None:
    """The kernel of an op that moves something, 0 where it has none."""
    if case.shape.gemm is not None:
        return gemm_work(case.gpu, case.shape.gemm, case.gpu.sms).alone_ticks / TICKS_PER_US
    return 0.0 if case.shape.is_collective else None


@dataclass(slots=True)
class _Library:
    """The times of ops by the library, each kind of op once."""

    implementation: Implementation
    _predicted: dict[OpShape, CallTimes | Rejection] = field(default_factory=dict)
    _times: dict[OpShape, CallTimes] = field(default_factory=dict)

    @classmethod
    def of(cls, shipped: Iterable[Implementation]) -> "_Library":
        """Return the library among what ships."""
        return cls(next(each for each in shipped if any(method.is_library for method in each.methods)))

    @property
    def name(self) -> str:
        """What it is called."""
        return self.implementation.name

    def predicted(self, case: OpCase) -> CallTimes | Rejection:
        """The predicted times of an op with its call, or why there are none."""
        if case.shape not in self._predicted:
            pair = case.shape.pattern.overlaps  # a collective alone has no call in a layer
            self._predicted[case.shape] = call_times(case, self.implementation) if pair else _by_library(case)
        return self._predicted[case.shape]

    def times(self, case: OpCase) -> CallTimes:
        """The times of any op: what no call is known of goes without one, else by the direct exchange."""
        if case.shape not in self._times:
            known = None if case.shape.moved is None else self.predicted(case)
            self._times[case.shape] = known if isinstance(known, CallTimes) else _without_call(case)
        return self._times[case.shape]


def _by_library(case: OpCase) -> CallTimes | Rejection:
    """The library's time of an op without a call, or why it is not known."""
    try:
        us = library_us(case)
    except ScheduleError as error:
        return error.rejection
    except RunTooLarge as error:
        return Rejection(Code.MGS406, str(error).splitlines()[0])
    return CallTimes(us, us, us)


def _dtype(shape: OpShape) -> DType | None:
    """The type that an implementation has to know: of a GEMM, of what is moved to experts and back, or summed alone.

    None if there is none, or if a GEMM has weights of another type, for which nothing is known.
    """
    if shape.gemm is not None:
        return shape.gemm.dtype if shape.gemm.right is shape.gemm.dtype else None
    alone = shape.routing is not None or shape.pattern is Pattern.ALL_REDUCE
    return shape.moved.dtype if alone and shape.moved is not None else None


def _without_call(case: OpCase) -> CallTimes:
    known = _by_library(case)
    if isinstance(known, CallTimes):
        return known
    us = simulated_us(case, OpChoice(BASELINE.name, case.num_ranks, usual_engine(case.system, case.shape)))
    return CallTimes(us, us, us)


def _of_order(order: Order, scenario: Scenario, base: CallTimes) -> Offer:
    """What the order of an implementation gains: its calls cost what those of the library do, of all layers."""
    layers, without_us = scenario.num_layers, order.all_ticks / TICKS_PER_US
    calls_us = (base.us - base.graph_us) * layers
    us = without_us + calls_us
    counted = "taken to be the library's" if calls_us else "left out"
    outside = f"{order.unknown} are {counted}" if order.unknown else ""
    promise = Promise(base.us * layers / us, None, outside, base.graph_us * layers / without_us)
    ops = tuple(dict.fromkeys(each.op for each in order.table.settings))
    return Offer(order.implementation, us, promise, bool(scenario.explore.implementations), ops, order)


def _offer(
    scenario: Scenario, implementation: Implementation, library: _Library, base: CallTimes
) -> tuple[Offer | None, Rejection | None]:
    """What an implementation gains, None where it is not offered; and why of an op nothing is known, if that is so."""
    requested = bool(scenario.explore.implementations)
    done, times, rejection = dict[str, CallTimes](), dict[OpShape, CallTimes | Rejection](), None
    for case in scenario.cases:
        if not (requested and case.shape.moved is not None) and not _is_offered(implementation, case):
            continue
        if case.shape not in times:
            times[case.shape] = not_measured(implementation, case) or call_times(case, implementation)
        found = times[case.shape]
        if isinstance(found, Rejection):
            rejection = rejection or found
        else:
            done[case.name] = found
    if not done:
        return None, rejection
    one = CallTimes.sum(done.get(case.name) or library.times(case) for case in scenario.cases)
    reported = list(_reported(scenario, implementation, {name: each.us for name, each in done.items()}))
    errors = [None if error is None else error * done[name].us / one.us for name, error, *_ in reported]
    error = None if None in errors else sum(each for each in errors if each is not None)
    outside = "; ".join(dict.fromkeys(text for _, _, text, _ in reported if text))
    promise = Promise(base.us / one.us, error, outside, base.graph_us / one.graph_us, base.host_us / one.host_us)
    about = "; ".join(dict.fromkeys(text for _, _, _, text in reported if text))
    us = one.us * scenario.num_layers
    methods = filter(None, (implementation.method_of(case.shape) for case in scenario.cases if case.name in done))
    fused = any(each.choice.tactics.kernel is Kernels.PERSISTENT for each in methods)
    return Offer(implementation.name, us, promise, requested, tuple(done), about=about, is_kernel=fused), rejection


def _offer_of_experts(
    scenario: Scenario, implementation: Implementation, library: _Library, base: CallTimes
) -> tuple[Offer | None, Rejection | None]:
    """What one kernel for the experts of a layer gains, as ``_offer``; like the library's ops it has no call."""
    kernel, requested = implementation.experts, bool(scenario.explore.implementations)
    chains = tuple(chains_of(scenario.workload))
    unfit = [reject_chain(implementation, scenario.system, chain) for chain in chains]
    if kernel is None or not chains or any(unfit):
        missing = Rejection(Code.MGS530, "there is no dispatch, gated experts and combine, with nothing between kept")
        known = scenario.system.gpu.name in implementation.gpus
        return None, next(filter(None, unfit), missing) if requested or (known and chains) else None
    times = [fused_us(kernel, scenario.system, chain) for chain in chains]
    done, all_us = {op.name for chain in chains for op in chain.ops}, sum(times)
    others = (library.times(case) for case in scenario.cases if case.name not in done)
    one = CallTimes(all_us, all_us, all_us) + CallTimes.sum(others)
    error = None if kernel.error is None else float(kernel.error) * all_us / one.us
    shortest = kernel.shortest_ticks / TICKS_PER_US
    outside = f"measured from {us_text(shortest)} on" if min(times) < shortest else ""
    took = f"one kernel of {len(chains[0].ops)} ops takes {us_text(times[0])}"
    about = f"{took}; it reads {kernel.weight_bytes} bytes a weight"
    promise = Promise(base.us / one.us, error, outside, base.graph_us / one.graph_us, base.host_us / one.host_us)
    ops, layers = tuple(case.name for case in scenario.cases if case.name in done), scenario.num_layers
    saved = sum(saved_us(kernel, scenario.system, chain) for chain in chains) * layers
    return Offer(implementation.name, one.us * layers, promise, requested, ops, about=about, saved_us=saved), None


def _reported(
    scenario: Scenario, implementation: Implementation, done: dict[str, float]
) -> Iterator[tuple[str, float | None, str, str]]:
    """Of each op that is done its name, the error of its time, why that is not of the like of it, and its kernels."""
    for case in scenario.cases:
        if case.name in done:
            method = implementation.method_of(case.shape)
            error = None if method is None else error_of(method)
            if error is not None and case.gpu.name not in implementation.gpus:
                error = widened(error, (scenario.profile_error,))
            about = "" if method is None else about_kernels(case, method)
            yield case.name, error, _outside(case, implementation, done[case.name]), about


def _outside(scenario: OpCase, implementation: Implementation, us: float) -> str:
    """Why the numbers of an implementation were not measured for the like of this; empty if they were."""
    method = implementation.method_of(scenario.shape)
    if scenario.gpu.name not in implementation.gpus:
        return f"known for {', '.join(implementation.gpus) or 'no GPU'}"
    if method is not None and us * TICKS_PER_US < method.shortest_ticks:
        return f"measured from {us_text(method.shortest_ticks / TICKS_PER_US)} on"
    return ""


def _is_offered(implementation: Implementation, scenario: OpCase) -> bool:
    """Whether it is offered by default: it is known for this GPU, type, pattern and ranks, and is not the library."""
    method = implementation.method_of(scenario.shape)
    if method is None or method.missing or method.is_library or not method.has_ranks(scenario.num_ranks):
        return False
    return scenario.gpu.name in implementation.gpus and _dtype(scenario.shape) in implementation.dtypes
