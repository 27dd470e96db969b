"""What a framework can switch on, decided once: whether it pays, which comes first, and what to write.

Questions, tables and files of runtimes ask here. A switch pays by ``Promise.pays``: by any call it gains more than its
error, where that was measured. The baseline is what the framework runs today.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...compiler.from_model.frameworks import Framework, FrameworkSwitch
from ...compiler.ir import ElementwiseShape, Op, Pattern, RowWiseShape, Scenario
from ...compiler.resolve.expect.expectation import Verdict
from ..candidates.advice import Advice
from ..implementations.offers import by_library, offers_of
from ..implementations.predict import Promise


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """``tokens`` of all GPUs and of one, and the weights of a layer that are gathered."""

    tokens: int
    own_tokens: int
    elements: int
    num_bytes: int

    def fill(self, setting: str, pays_from: int | None) -> str:
        """Return a setting with numbers for its words."""
        words = {"OWN_TOKENS": self.own_tokens, "TOKENS": pays_from or self.tokens}
        words |= {"ELEMENTS": self.elements, "BYTES": self.num_bytes}
        for word, number in words.items():
            setting = setting.replace(word, str(number))
        return setting


def sizes_of(scenario: Scenario) -> LayerSizes:
    """Return the sizes of a layer."""
    gathers = weights_gathered(scenario)
    moved = [op.shape.moved for op in scenario.workload.ops if op.name in gathers and op.shape.moved is not None]
    rows = max((case.shape.gemm.m for case in scenario.cases if case.shape.gemm is not None), default=0)
    sent = max((case.shape.routing.rows for case in scenario.cases if case.shape.routing is not None), default=0)
    own = max(sent, rows // scenario.num_ranks if is_tensor_parallel(scenario) else rows)
    elements = sum(each.rows * each.cols for each in moved)
    return LayerSizes(own * scenario.num_ranks, own, elements, sum(each.num_bytes for each in moved))


_SHARED_PRODUCTS = (Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR)


def is_tensor_parallel(scenario: Scenario) -> bool:
    """Whether GPUs share products, and not only the weights of them."""
    return not weights_gathered(scenario) and any(case.shape.pattern in _SHARED_PRODUCTS for case in scenario.cases)


def weights_gathered(scenario: Scenario) -> frozenset[str]:
    """Return the ops that gather weights, of which each rank holds a part: what products take as their right operand.

    What a backward pass gathers again of activations, products of gradients take as their left one.
    """
    ops = scenario.workload.ops
    taken = {op.reads[-1].made_by for op in ops if op.shape.gemm is not None and op.reads}
    return frozenset(
        op.name
        for op in ops
        if op.shape.pattern is Pattern.ALL_GATHER and op.name in taken and not any(read.made_by for read in op.reads)
    )


@dataclass(frozen=True, slots=True)
class Switched:
    """What a switch gains over today; ``pays_from`` are the fewest tokens from which it pays, None if not known."""

    switch: FrameworkSwitch
    promise: Promise
    sizes: LayerSizes
    pays_from: int | None = None

    @property
    def pays(self) -> bool:
        """Whether to switch it on."""
        return self.promise.pays

    @property
    def setting(self) -> str:
        """What to write to have it."""
        return self.sizes.fill(self.switch.setting, self.pays_from)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        promise = self.promise
        return {
            "switch": self.switch.what,
            "setting": self.setting,
            "gain": promise.speedup,
            "interval": promise.interval,
            "verdict": promise.verdict.value,
            "from_tokens": self.pays_from,
            "costs": self.switch.costs,
            "else_runs": self.switch.else_runs or None,
        }


def first_paying(pays: Sequence[bool]) -> tuple[int, int | None]:
    """Return at which of rising sizes a switch pays first, and the first larger one at which it does no longer.

    The former is their number where it pays at none; the latter None where it pays at all that are larger.
    """
    first = next((place for place, does in enumerate(pays) if does), len(pays))
    return first, next((place for place in range(first, len(pays)) if not pays[place]), None)


_ORDER = (Verdict.OVERLAP, Verdict.WORTH_TRYING, Verdict.SERIAL)


def best_first(found: Iterable[Switched]) -> tuple[Switched, ...]:
    """Return those that pay first, what was measured before what was not, the largest gain first."""
    return tuple(
        sorted(found, key=lambda each: (not each.pays, _ORDER.index(each.promise.verdict), -each.promise.speedup))
    )


def time_today(framework: Framework, advice: Advice) -> tuple[float, float]:
    """Return the time as the framework runs it, and by the library alone; of the baseline where these are not known.

    An order that it has by default is simulated, without calls, as the baseline is; so is a layer that gathers weights,
    each while the kernels before it run. A framework that holds activations whole runs a layer by rows so.
    """
    offers, baseline = advice.offers, advice.serial.best_us
    if offers is None or offers.library_us is None:
        return baseline, baseline
    whole = None if framework.by_rows else with_whole_activations(advice.scenario)
    if whole is not None:
        us = offers.library_us * today_of(framework, whole).us / by_library(advice.scenario).us
        return us, offers.library_us
    gathered = sizes_of(advice.scenario).elements
    by_default = (each.offer for each in framework.switches if 0 < gathered <= each.on_up_to)
    default = offers.named(framework.default or next(by_default, ""))
    if default is not None or gathered:
        return baseline if default is None else default.us, baseline
    return offers.fastest_us(framework.all_reduce), offers.library_us


_SUMMED = {Pattern.GEMM_RS: Pattern.GEMM_AR, Pattern.REDUCE_SCATTER: Pattern.ALL_REDUCE}


def with_whole_activations(scenario: Scenario) -> Scenario | None:
    """Return a layer by rows as it is where each rank holds all rows: one all_reduce for two collectives.

    None where it does not both gather rows and scatter sums: of a part of a layer it is not known which half of the
    all_reduce is its own. Products of own rows by whole weights become those of all rows: by parts of them where one
    follows another, as in a shared expert, by all of them where what is gathered follows.
    """
    patterns = {op.shape.pattern for op in scenario.workload.ops}
    if weights_gathered(scenario) or Pattern.AG_GEMM not in patterns or not patterns & _SUMMED.keys():
        return None
    by_rows, ops, ranks = set[str](), list[Op](), scenario.num_ranks
    own = _products_of_own_rows(scenario)
    pairs = _pairs_of_products(scenario, own)
    for op in scenario.workload.ops:
        shape, made = op.shape, {read.made_by for read in op.reads if read.made_by}
        if shape.pattern is Pattern.ALL_GATHER:
            continue
        if shape.pattern is Pattern.AG_GEMM:
            shape = replace(shape, pattern=Pattern.GEMM, moved=None)
        elif shape.pattern in _SUMMED:
            shape = replace(shape, pattern=_SUMMED[shape.pattern])
            by_rows.add(op.name)
        elif op.name in own and shape.gemm is not None:
            gemm = replace(shape.gemm, m=shape.gemm.m * ranks)
            if op.name in pairs.values():
                gemm = replace(gemm, k=gemm.k // ranks)
            elif op.name in pairs:
                gemm = replace(gemm, n=gemm.n // ranks)
            else:
                by_rows.add(op.name)
            shape = replace(shape, gemm=gemm)
        elif isinstance(shape.kernel, ElementwiseShape) and (not made or made & by_rows):
            shape = replace(shape, kernel=_of_all_rows(shape.kernel, ranks))
            by_rows.add(op.name)
        ops.append(replace(op, shape=shape))
    return replace(scenario, workload=replace(scenario.workload, ops=tuple(ops)))


def _products_of_own_rows(scenario: Scenario) -> frozenset[str]:
    """The products of the rows of one rank, which nothing gathers before."""
    products = [(op, op.shape.gemm.m) for op in scenario.workload.ops if op.shape.gemm is not None]
    whole = max(rows for _, rows in products)
    alone = ((op.name, rows) for op, rows in products if op.shape.pattern is Pattern.GEMM)
    return frozenset(name for name, rows in alone if rows * scenario.num_ranks == whole)


def _pairs_of_products(scenario: Scenario, own: frozenset[str]) -> dict[str, str]:
    """Products of ``own`` rows that another such product follows, with nothing but kernels between."""
    behind, pairs = dict[str, str](), dict[str, str]()
    for op in scenario.workload.ops:
        first = next((behind[read.made_by] for read in op.reads if read.made_by in behind), None)
        if op.name in own:
            behind[op.name] = op.name
            if first is not None:
                pairs[first] = op.name
                del behind[op.name]
        elif first is not None and isinstance(op.shape.kernel, ElementwiseShape):
            behind[op.name] = first
    return pairs


def _of_all_rows(kernel: ElementwiseShape, ranks: int) -> ElementwiseShape:
    """A kernel of the rows of one rank, of those of so many."""
    if isinstance(kernel, RowWiseShape):
        return kernel.at_rank(ranks, (), 1)
    return replace(kernel, num_elements=kernel.num_elements * ranks)


@dataclass(frozen=True, slots=True)
class Today:
    """All layers as a framework that serves runs them, in us: as called, in a CUDA graph, by the library alone.

    ``exposed_us`` is what collectives take of the time in a graph, None where that is not known.
    """

    us: float
    graph_us: float
    library_us: float
    exposed_us: float | None


def today_of(framework: Framework, scenario: Scenario) -> Today:
    """Return the time of layers that gather no weights: the library's, or with the framework's own all_reduce."""
    library, family = by_library(scenario), framework.all_reduce
    offers = offers_of(scenario, only=[family]) if family else None
    if offers is None or offers.library_us is None:
        return Today(library.us, library.graph_us, library.us, library.moving_us)
    gains = [1.0, *(each.promise.in_graph or each.promise.speedup for each in offers.offers)]
    graph_us = library.graph_us / max(gains)
    exposed = None if library.moving_us is None else library.moving_us - (library.graph_us - graph_us)
    return Today(offers.fastest_us(family), graph_us, library.us, exposed)


def switched(
    framework: Framework, switch: FrameworkSwitch, advice: Sequence[Advice], today: float | None = None
) -> Switched | None:
    """Return what a switch gains in all workloads of ``advice`` together; None where of one nothing is known.

    It gains over ``today`` where the framework runs another layer than that of ``advice``, else over what runs there.
    """
    found = [pair for each in advice if (pair := _time_of(framework, each, switch.offer)) is not None]
    if not found or len(found) != len(advice):
        return None
    today = sum(time_today(framework, each)[0] for each in advice) if today is None else today
    (_, promise), us = found[0], sum(us for us, _ in found)
    return Switched(switch, promise.over(today / us / promise.speedup), sizes_of(advice[0].scenario))


def _time_of(framework: Framework, advice: Advice, name: str) -> tuple[float, Promise] | None:
    """The time of an offer with its promise, or of a schedule of that name with the library's calls and no error."""
    offer = advice.offer(name)
    if offer is not None:
        return offer.us, offer.promise
    stem = name.removesuffix("_overlap")
    known = (one.best_us for one in advice.candidates if one.expression.startswith(stem))
    us = min(known, default=None)
    if us is None:
        return None
    _, library_us = time_today(framework, advice)
    return us + library_us - advice.serial.best_us, Promise(advice.serial.best_us / us, None)
