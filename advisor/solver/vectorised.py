"""The same space as the CP-SAT model states, written down directly: sums of arrays of codes, for spaces of any size.

What is legal is asked of ``compiler.planning.build.reject_choice``, once for each combination that can decide it, and
not of the rules of the model; ``tests/advisor/solver/test_generator.py`` holds the two sets against each other.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from itertools import product

import numpy as np

from ...compiler.codes import Code
from ...compiler.ir import (
    Choice,
    CopyProtocol,
    Direction,
    EngineChoice,
    ExecutionOptions,
    Kernels,
    LaunchMode,
    PeerOrder,
    Scenario,
    ShouldStop,
    Wait,
)
from ...compiler.planning.build import reject_choice
from ...compiler.planning.execution import reject_tactics
from ...compiler.templates import ALL_TEMPLATES, Template
from ...compiler.templates.collective import DEFAULT_ALGORITHM
from .domains import Domains, algorithms_of, candidate_streams, is_granted, knobs_of, resident_bytes
from .knobs import Codes, Knob
from .memory import staging_needed
from .tactics_rules import repeated_orders

# As many fit into memory with what is done to them; a file that asks for more gets a part.
MOST_CODES = 10_000_000
_WAITS = {Kernels.LAUNCHED: Wait.EVENT, Kernels.PERSISTENT: Wait.POLL}


def generate(scenario: Scenario, domains: Domains, is_over: ShouldStop = lambda: False) -> Codes:
    """Codes of every feasible choice, in ascending order; no more than some ``MOST_CODES``.

    ``is_over`` is asked now and then; what was found until it says so is returned.
    """
    generator = _Generator(scenario, domains, is_over)
    templates = (ALL_TEMPLATES[index] for index in domains.templates)
    blocks, total = list[Codes](), 0
    for block in (block for template in templates for block in generator.blocks(template)):
        blocks.append(block)
        total += len(block)
        if total > MOST_CODES or is_over():
            break
    return np.sort(np.concatenate(blocks)) if blocks else np.empty(0, np.int64)


class _Generator:
    """One scenario. A block are all choices of one template, engine, algorithm, number of streams and direction."""

    def __init__(self, scenario: Scenario, domains: Domains, is_over: ShouldStop) -> None:
        self._scenario, self._domains, self._knobs = scenario, domains, knobs_of(scenario, domains)
        self._is_over = is_over
        self._moves = scenario.workload.moved is not None
        self._engines = [engine for engine in domains.engines if is_granted(scenario, engine)]
        limit = scenario.explore.staging_limit_bytes
        room = scenario.gpu.hbm.capacity_bytes - resident_bytes(scenario)
        self._staging_limit = room if limit is None else min(room, limit)
        self._known: dict[tuple[Choice, Kernels], Codes] = {}

    def blocks(self, template: Template) -> Iterator[Codes]:
        """All choices of a template."""
        if self._scenario.workload.pattern not in template.patterns or not self._engines:
            return
        counts = [count for count in self._knobs.values[Knob.CHUNKS] if self._is_cut(template, count)]
        streams = candidate_streams(template, self._domains)
        algorithms = algorithms_of(self._scenario, template, self._domains)
        directions = self._domains.directions if self._moves else (Direction.PUT,)
        for engine, several, algorithm, direction in product(self._engines, streams, algorithms, directions):
            if self._is_over():
                return
            for count in counts[:1]:
                choice = Choice(template.name, count, engine, several, ExecutionOptions(direction), algorithm)
                if reject_choice(self._scenario, choice) is None:
                    yield from self._block(template, choice, counts)

    def _is_cut(self, template: Template, count: int) -> bool:
        """Whether such chunks are asked for, the tensor divides into them, and none is smaller than a line."""
        n, moved = self._scenario.num_ranks, self._scenario.workload.moved
        if not template.cuts_shards:
            return count == n
        if self._is_over():
            return False
        if moved is None or count not in self._domains.chunks:
            return False
        if template.name == DEFAULT_ALGORITHM and count == n:  # that is serial
            return False
        error = reject_choice(self._scenario, Choice(template.name, count, self._engines[0]))
        divides = error is None or error.code is not Code.MGS512
        return divides and moved.num_bytes >= count * self._scenario.gpu.line_bytes

    def _block(self, template: Template, choice: Choice, counts: Sequence[int]) -> Iterator[Codes]:
        direction = choice.tactics.direction
        fixed = {
            Knob.TEMPLATE: ALL_TEMPLATES.index(template),
            Knob.ENGINE: choice.engine,
            Knob.STREAMS: choice.streams,
            Knob.ALGORITHM: choice.algorithm,
            Knob.TRANSFER: direction,
        }
        base = np.array([self._code(fixed)])
        orders = self._codes(Knob.ORDER, self._orders(template, direction))
        protocols = self._codes(Knob.PROTOCOL, self._protocols(choice.engine))
        # Who copies matters for what is held only where sums are made on the way.
        by_algorithm = self._scenario.workload.pattern.sums and template.default_algorithm
        alike = choice if by_algorithm else replace(choice, engine=self._engines[0], algorithm="")
        for kernel, ways in self._ways.items():
            if (alike, kernel) not in self._known:
                self._known[alike, kernel] = self._held(template, alike, kernel, counts)
            held = self._known[alike, kernel]
            yield reduce(np.add.outer, (base, held, orders, protocols, ways)).ravel()

    def _held(self, template: Template, choice: Choice, kernel: Kernels, counts: Sequence[int]) -> Codes:
        """Counts of chunks with the depths that may go with them, as far as memory holds what is staged."""
        tactics = replace(choice.tactics, kernel=kernel, wait=_WAITS[kernel])
        found: list[int] = []
        for count, depth in product(counts, self._domains.depths):
            if self._is_over():
                break
            each = replace(choice, chunks=count, depth=depth, tactics=tactics)
            in_part = template.has_depth and depth * self._scenario.num_ranks < count
            possible = depth == 0 or (in_part and reject_choice(self._scenario, each) is None)
            if possible and staging_needed(self._scenario, each) <= self._staging_limit:
                found.append(self._code({Knob.CHUNKS: count, Knob.DEPTH: depth}))
        return np.array(found, np.int64)

    def _orders(self, template: Template, direction: Direction) -> Iterable[PeerOrder]:
        """Orders that differ from each other."""
        if not (template.has_order and self._moves):
            return (PeerOrder.ROTATED,)
        asked = self._domains.orders
        repeated = repeated_orders(self._scenario, direction, asked)
        sized = self._scenario.workload.uneven
        return [order for order in asked if order not in repeated and (sized or not order.by_size)]

    def _protocols(self, engine: EngineChoice) -> Iterable[CopyProtocol]:
        if not self._moves:
            return (CopyProtocol.SIMPLE,)
        system = self._scenario.system
        asked = self._domains.protocols
        return [each for each in asked if reject_tactics(system, engine, ExecutionOptions(protocol=each)) is None]

    @cached_property
    def _ways(self) -> dict[Kernels, Codes]:
        """Kernels, how they wait and how they are launched, by kernel."""
        domains, workload = self._domains, self._scenario.workload
        kernels = [each for each in domains.kernels if each is Kernels.LAUNCHED or workload.may_persist]
        found: dict[Kernels, list[int]] = {kernel: [] for kernel in kernels}
        for kernel, wait, per in product(kernels, domains.waits, domains.waits_per):
            tactics = ExecutionOptions(kernel=kernel, wait=wait, per=per)
            if reject_tactics(self._scenario.system, self._engines[0], tactics) is not None:
                continue
            for launch in self._launches:
                way = {Knob.KERNEL: kernel, Knob.WAIT: wait, Knob.PER: per, Knob.LAUNCH: launch}
                found[kernel].append(self._code(way))
        return {kernel: np.array(sorted(set(ways)), np.int64) for kernel, ways in found.items() if ways}

    @property
    def _launches(self) -> Iterable[LaunchMode]:
        """A graph where there are kernels for it, and the profile knows what it costs."""
        workload = self._scenario.workload
        kernels = workload.compute is not None or workload.pattern.sums
        graphs = kernels and self._scenario.gpu.sync.graph_launch_ticks is not None
        return [launch for launch in self._domains.launches if launch is LaunchMode.STREAM or graphs]

    def _codes(self, knob: Knob, values: Iterable[object]) -> Codes:
        return np.array([self._code({knob: value}) for value in values], np.int64)

    def _code(self, values: Mapping[Knob, object]) -> int:
        places = self._knobs.values
        return self._knobs.code_of({knob: places[knob].index(value) for knob, value in values.items()})
