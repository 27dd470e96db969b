"""The rules on how a schedule is carried out: engines, protocols, kernels, waits, order of peers and buffers held."""

from collections.abc import Iterator
from itertools import product

from ...compiler.ir import (
    Direction,
    ExecutionOptions,
    Kernels,
    LaunchMode,
    PeerOrder,
    Rejection,
    Scenario,
)
from ...compiler.planning.execution import reject_persistent, reject_tactics
from ...compiler.templates import Template
from ...compiler.templates.base import TemplateInput
from ...compiler.templates.serving import reject_depth, reject_order
from .domains import Domains
from .knobs import Knob
from .rules import Rules, listed

# Knobs whose values are words that a file may ask for, beside the order; the first of them are those of transfers.
_ASKED = (Knob.TRANSFER, Knob.PROTOCOL, Knob.KERNEL, Knob.WAIT, Knob.PER, Knob.LAUNCH)
_OF_TRANSFERS = _ASKED[:2]
_USUAL = ExecutionOptions()


class TacticsConstraints:
    """Adds every family of these rules to a model."""

    def __init__(self, rules: Rules, scenario: Scenario, domains: Domains) -> None:
        self._rules, self._scenario, self._domains = rules, scenario, domains
        self._values = rules.variables.knobs.values
        self._templates = rules.variables.templates()
        self._moves = scenario.workload.moved is not None

    def add_all(self) -> None:
        """State what can be carried out."""
        self._one_name_a_way()
        self._values_are_asked_for()
        self._orders_are_asked_for()
        self._protocols_are_carried()
        self._kernels_wait_as_they_can()
        self._kernels_are_there()
        if self._moves:
            self._peers_can_be_served()
            self._buffers_can_be_reused()

    def _one_name_a_way(self) -> None:
        """What makes no difference stands at its usual value, so that no two solutions are one schedule."""
        if not self._moves:
            for knob in _OF_TRANSFERS:
                self._rules.forbid({knob: self._unusual(knob)})
        for digit, template in self._templates:
            for knob, has in ((Knob.ORDER, template.has_order), (Knob.DEPTH, template.has_depth)):
                if not (has and self._moves):
                    self._rules.forbid({Knob.TEMPLATE: [digit], knob: self._unusual(knob)})
        for chunks, count in enumerate(self._values[Knob.CHUNKS]):
            depths = enumerate(self._values[Knob.DEPTH])
            all_held = [at for at, depth in depths if depth and depth * self._scenario.num_ranks >= count]
            self._rules.forbid({Knob.CHUNKS: [chunks], Knob.DEPTH: all_held})
        for transfer, direction in enumerate(self._values[Knob.TRANSFER]):
            same = repeated_orders(self._scenario, direction, self._domains.orders)
            orders = [at for at, order in enumerate(self._values[Knob.ORDER]) if order in same]
            self._rules.forbid({Knob.TRANSFER: [transfer], Knob.ORDER: orders})

    def _unusual(self, knob: Knob) -> range:
        return range(1, len(self._values[knob]))

    def _values_are_asked_for(self) -> None:
        domains = self._domains
        asked = (domains.directions, domains.protocols, domains.kernels, domains.waits)
        for knob, wanted in zip(_ASKED, (*asked, domains.waits_per, domains.launches), strict=True):
            values = self._values[knob]
            others = [at for at, value in enumerate(values) if value not in wanted]
            if others and (self._moves or knob not in _OF_TRANSFERS):
                words = [value.value for value in values if value in wanted]
                self._rules.forbid({knob: others}, self._rules.rule(f"{knob.value} is {listed(words, 'or')}"))

    def _orders_are_asked_for(self) -> None:
        wanted, values = self._domains.orders, self._values[Knob.ORDER]
        others = [at for at, order in enumerate(values) if order not in wanted]
        having = [digit for digit, template in self._templates if template.has_order]
        if others and self._moves and having:
            words = [order.value for order in values if order in wanted]
            rule = self._rules.rule(f"order is {listed(words, 'or')}")
            self._rules.forbid({Knob.TEMPLATE: having, Knob.ORDER: others}, rule)

    def _protocols_are_carried(self) -> None:
        """Only SMs copy in another protocol than the simple one, and only on a link that can carry it."""
        places = product(enumerate(self._values[Knob.ENGINE]), enumerate(self._values[Knob.PROTOCOL]))
        self._rules.forbid_rejected(
            (
                reject_tactics(self._scenario.system, engine, ExecutionOptions(protocol=protocol)),
                {Knob.ENGINE: [at], Knob.PROTOCOL: [digit]},
            )
            for (at, engine), (digit, protocol) in places
        )

    def _kernels_wait_as_they_can(self) -> None:
        """Launched kernels wait for events, persistent ones poll or are woken."""
        engine = self._values[Knob.ENGINE][0]
        self._rules.forbid_rejected(
            (
                reject_tactics(self._scenario.system, engine, self._waiting(at)),
                {knob: [digit] for knob, digit in at.items()},
            )
            for at in self._places((Knob.KERNEL, Knob.WAIT, Knob.PER))
        )

    def _waiting(self, at: dict[Knob, int]) -> ExecutionOptions:
        kernel, wait, per = (self._values[knob][digit] for knob, digit in at.items())
        return ExecutionOptions(kernel=kernel, wait=wait, per=per)

    def _kernels_are_there(self) -> None:
        """A persistent kernel is one GEMM here; a graph differs from a stream where the profile says what it costs."""
        workload, gpu = self._scenario.workload, self._scenario.gpu
        unfit = reject_persistent(workload)
        if Kernels.PERSISTENT in self._values[Knob.KERNEL] and unfit is not None:
            self._rules.forbid({Knob.KERNEL: self._unusual(Knob.KERNEL)}, self._rules.rule(unfit.message))
        if LaunchMode.GRAPH not in self._values[Knob.LAUNCH]:
            return
        if gpu.sync.graph_launch_ticks is None:
            rule = self._rules.rule(f"the profile of {gpu.name} has no graph_launch: a graph is launched like a stream")
            self._rules.forbid({Knob.LAUNCH: self._unusual(Knob.LAUNCH)}, rule)
        elif workload.compute is None and not workload.pattern.sums:
            rule = self._rules.rule(f"a graph launches kernels, {workload.label} has none")
            self._rules.forbid({Knob.LAUNCH: self._unusual(Knob.LAUNCH)}, rule)

    def _peers_can_be_served(self) -> None:
        """Templates without this knob stand still, so the reasons are those of the others."""
        self._rules.forbid_rejected(
            (reject_order(template, problem_of(self._scenario, order=order)), {Knob.ORDER: [at]})
            for at, order in enumerate(self._values[Knob.ORDER])
            for template in [template for _, template in self._templates if template.has_order][:1]
        )

    def _buffers_can_be_reused(self) -> None:
        """A get may wait for the kernel that frees its buffer."""
        held = [at for at in range(len(self._values[Knob.DEPTH])) if at]
        knobs = (Knob.TRANSFER, Knob.KERNEL, Knob.STREAMS)
        template = next((template for _, template in self._templates if template.has_depth), None)
        if not held or template is None:
            return
        self._rules.forbid_rejected(
            (self._reject_held(template, at), {Knob.DEPTH: held, **{knob: [digit] for knob, digit in at.items()}})
            for at in self._places(knobs)
        )

    def _reject_held(self, template: Template, at: dict[Knob, int]) -> Rejection | None:
        direction, kernel, streams = (self._values[knob][digit] for knob, digit in at.items())
        tactics = ExecutionOptions(direction, kernel=kernel)
        return reject_depth(template, problem_of(self._scenario, tactics=tactics, streams=streams, depth=1))

    def _places(self, knobs: tuple[Knob, ...]) -> Iterator[dict[Knob, int]]:
        """All digits of some knobs together."""
        for digits in product(*(range(len(self._values[knob])) for knob in knobs)):
            yield dict(zip(knobs, digits, strict=True))


def repeated_orders(scenario: Scenario, direction: Direction, orders: tuple[PeerOrder, ...]) -> frozenset[PeerOrder]:
    """Those of ``orders`` by which every rank serves its peers as by one before them."""
    seen: set[tuple[tuple[int, ...], ...]] = set()
    repeated = set()
    for order in (each for each in PeerOrder if each in orders):
        problem = problem_of(scenario, tactics=ExecutionOptions(direction), order=order)
        served = tuple(problem.of_rank(rank).served for rank in range(scenario.num_ranks))
        if served in seen:
            repeated.add(order)
        seen.add(served)
    return frozenset(repeated)


def problem_of(
    scenario: Scenario,
    *,
    tactics: ExecutionOptions = _USUAL,
    streams: int = 1,
    order: PeerOrder = PeerOrder.ROTATED,
    depth: int = 0,
) -> TemplateInput:
    """The workload as far as it decides who is served when, and what is held; sizes are left out."""
    return TemplateInput(
        pattern=scenario.workload.pattern,
        num_ranks=scenario.num_ranks,
        shard_rows=1,
        cols=1,
        inner=1,
        output_cols=1,
        pieces=1,
        streams=streams,
        tactics=tactics,
        split=scenario.workload.split,
        loads=scenario.workload.loads,
        order=order,
        depth=depth,
    )
