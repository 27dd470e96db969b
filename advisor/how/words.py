"""How to carry out a schedule in numbered sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ...compiler.ir import Kernels, OpCase, OpPlan, TileGroup, Transfer
from ...compiler.planning.knobs.library import exchange_on
from ...compiler.templates.collective import collective_in
from ...compiler.text.units import bytes_text
from .facts import Affine, Arrived, Block, Expression, Role, StepFacts, StepKind, composed, depends_on, fixed
from .folding import FoldedStep, LocalWait
from .how import How
from .naming import EntryNames, Telling, Variable, tellings_of

PRONOUNS = {"it": "its", "them": "their"}


def mentioned(text: str, said: set[str]) -> str:
    """Return ``text``, or a pronoun where the sentence has said it before, and nothing else that it may mean."""
    if said != {text}:
        said.add(text)
        return text
    return "it" if text.startswith("block ") else "them"


def blocks_text(blocks: Sequence[Block[Expression]], names: EntryNames) -> str:
    """Return blocks; those of which the same rows are meant together."""
    texts: list[str] = []
    for (role, rows, cols, other), same in groupby(blocks, lambda each: (each.role, each.rows, each.cols, each.other)):
        owners = [block.owner for block in same]
        cut = [*([names.rows(rows)] if rows else []), *([f"columns {names.span(cols)}"] if cols else [])]
        if other and role is Role.TO:
            cut = [f"{', '.join(cut) or 'all rows'} of rank {names.rank(other)}"]
        end = f" for rank {names.rank(other)}" if other and role is Role.FROM else ""
        texts.append(_owned(role, ", ".join(cut), owners, names) + end)
    return " and ".join(texts)


def _owned(role: Role, cut: str, owners: Sequence[tuple[Expression, ...]], names: EntryNames) -> str:
    if role is Role.ALL:
        return cut or "all rows"
    several = len(owners) > 1
    everyone = several and len(set(owners)) == names.frame.num_ranks
    if role is Role.OF:
        whose = "every block" if everyone else f"block{'s' if several else ''} {names.ranks(owners)}"
        return f"{cut} of {whose}" if cut else whose
    whose = "every rank" if everyone else f"rank{'s' if several else ''} {names.ranks(owners)}"
    return f"{cut or 'all rows'} {'for' if role is Role.TO else 'from'} {whose}"


@dataclass(frozen=True, slots=True)
class Come:
    """Blocks that have come alike: each from a source of its own, ``one_by_one``, or each from all ``sources``."""

    blocks: list[Block[Expression]]
    sources: list[tuple[Expression, ...]]
    adds: bool
    one_by_one: bool

    @property
    def is_own(self) -> bool:
        """Whether each comes from the rank that it is named after."""
        return self.one_by_one and self.sources == [block.owner for block in self.blocks]


def come_together(arrived: Sequence[Arrived[Expression]]) -> Iterator[Come]:
    """What must have arrived here, by what comes alike."""
    for (adds, _, _), same in groupby(arrived, lambda each: (each.adds, each.block.rows, each.block.cols)):
        from_whom: dict[Block[Expression], list[tuple[Expression, ...]]] = {}
        for each in same:
            from_whom.setdefault(each.block, []).append(each.source)
        firsts = [sources[0] for sources in from_whom.values()]
        if all(len(sources) == 1 for sources in from_whom.values()):
            one = Come([*from_whom], firsts, adds, one_by_one=True)
            if one.is_own or len(set(firsts)) == len(firsts):
                yield one
                continue
        alike: dict[tuple[tuple[Expression, ...], ...], list[Block[Expression]]] = {}
        for block, sources in from_whom.items():
            alike.setdefault(tuple(dict.fromkeys(sources)), []).append(block)
        yield from (Come(blocks, [*sources], adds, one_by_one=False) for sources, blocks in alike.items())


def arrived_texts(arrived: Sequence[Arrived[Expression]], names: EntryNames, said: set[str]) -> list[str]:
    """Return what must have arrived here; what comes alike together."""
    texts: list[str] = []
    for come in come_together(arrived):
        first, many = come.blocks[0], len(come.blocks) > 1 and len(come.sources) > 1
        several = len(come.blocks) > 1 or bool(first.rows or first.cols) or first.role is not Role.OF
        verb = "have" if several else "has"
        verb += f"{' each' if many and not come.one_by_one else ''} {'been added' if come.adds else 'arrived'}"
        whose = "" if come.is_own else f" from {_many(come.sources, names)}"
        order = ", in this order" if whose and many and come.one_by_one else ""
        texts.append(f"{mentioned(blocks_text(come.blocks, names), said)} {verb}{whose}{order}")
    return texts


def _many(ranks: Sequence[tuple[Expression, ...]], names: EntryNames) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {names.ranks(ranks)}"


@dataclass(frozen=True, slots=True)
class Reported:
    """One numbered line of the ranks of ``group``: a step, or the head of a loop (then ``entry`` is None)."""

    number: str
    text: str
    group: int
    entry: FoldedStep | None = None


def reported_steps(how: How) -> tuple[Reported, ...]:
    """Return the numbered lines of all groups, in issue order."""
    lines: list[Reported] = []
    for group, telling in enumerate(tellings_of(how)):
        for line in telling.lines:
            if line.variable is not None:
                text = f"for {line.variable.name} = {line.variable.values}:"
                lines.append(Reported(line.number, text, group))
            elif line.place is not None:
                text = _Sentence(telling, line.place, len(line.around)).text()
                lines.append(Reported(line.number, text, group, telling.entries[line.place]))
    return tuple(lines)


@dataclass(frozen=True, slots=True)
class _Sentence:
    """The sentence of the entry ``place``, which stands in ``around`` loops with others."""

    telling: Telling
    place: int
    around: int

    def text(self) -> str:
        """Return it: the queue, what must be before, what is done."""
        telling, names = self.telling, self.telling.names(self.place)
        entry, how = telling.entries[self.place], telling.how
        hidden = peer_axis(entry, self.around)
        shown = [each for axis, each in enumerate(names.variables) if axis >= self.around and axis != hidden]
        loops = " and ".join(f"{each.name} = {each.values}" for each in shown)
        said: set[str] = set()
        waits = arrived_texts(entry.facts.arrived, names, said)
        waits += [self._local(wait, names, said) for wait in telling.waits(self.place)]
        if entry.facts.action.flagged:
            waits.append("the peer says that it has this")
        sums = entry.facts.action.kind is StepKind.GET and how.scenario.shape.pattern.produces
        if how.schedule.engine.by_tiles and sums:
            waits.append("the tiles of every rank have computed it")
        action = _Action(how, entry.facts, names, _peers(entry.facts, names, hidden), said).text()
        when = f"{'as' if self._by_tiles() else 'when'} {' and '.join(waits)}" if waits else ""
        parts = [f"for {loops}" if loops else "", when, action]
        queue = _queue_text(how.schedule, entry.facts, names)
        return f"{queue}: {', '.join(part for part in parts if part)}{self._amount(entry)}"

    def _local(self, wait: LocalWait, names: EntryNames, said: set[str]) -> str:
        """Return which steps must be done before, and with what where they are done with several things."""
        text = f"step {self.telling.numbers[wait.entry]}"
        target, there = self.telling.entries[wait.entry].facts, self.telling.variables[wait.entry]
        rounds = [(each, round_) for each, round_ in zip(there, wait.rounds, strict=True) if round_ is not None]
        values = [round_text(variable, round_, names) for variable, round_ in rounds]
        if len(rounds) < len(there):
            text = f"all of {text}"
        if any(value != variable.name for value, (variable, _) in zip(values, rounds, strict=True)):
            blocks = _substituted(target.blocks, wait, names)
            if blocks is None or len(rounds) < len(there):
                pairs = zip(rounds, values, strict=True)
                text = f"{text} is done with {', '.join(f'{each.name} = {value}' for (each, _), value in pairs)}"
            else:
                text = f"{text} is done with {mentioned(blocks_text(blocks, names), said)}"
        else:
            text = f"{text} is done"
        return text + (", tile by tile" if self._by_tiles() else "") + _only_for(wait, names)

    def _by_tiles(self) -> bool:
        """Whether tiles store what the step moves, each as soon as it is computed."""
        facts = self.telling.entries[self.place].facts
        return self.telling.how.schedule.engine.by_tiles and facts.action.kind is StepKind.PUT and not facts.arrived

    def _amount(self, entry: FoldedStep) -> str:
        """Return how much it is, where all steps of the entry move or compute as much."""
        schedule, scenario = self.telling.how.schedule, self.telling.how.scenario
        amounts: set[str] = set()
        for rank in self.telling.group.ranks[: 1 if schedule.symmetric else None]:
            steps = schedule.steps_of(rank)
            for step in (steps[place] for place in entry.places):
                if isinstance(step, Transfer) and scenario.shape.moved is not None:
                    elements = step.region.elements
                    amounts.add(bytes_text(scenario.shape.moved.dtype.bytes_of(elements)))
                elif isinstance(step, TileGroup) and scenario.shape.moved is not None:
                    amounts.add(f"{sum(region.rows.size for region in step.regions)} rows")
        if entry.facts.action.kind is StepKind.LIBRARY or len(amounts) != 1:
            return ""
        each = " each" if len(entry.places) > 1 and entry.facts.action.kind is not StepKind.KERNEL else ""
        return f" ({amounts.pop()}{each})"


def round_text(variable: Variable, said: Expression, names: EntryNames) -> str:
    """Return the value of a variable of another entry, in the variables of this one."""
    return names.number(replace(said, base=said.base + variable.start) if isinstance(said, Affine) else said)


def _only_for(wait: LocalWait, names: EntryNames) -> str:
    """Return in which rounds a step waits, empty if in all."""
    if wait.stop is None:
        return ""
    variable = names.variables[wait.axis]
    low, high = variable.start + wait.start, variable.start + wait.stop - 1
    return f" (for {variable.name} = {low})" if low == high else f" (for {variable.name} from {low} to {high})"


def _substituted(
    blocks: Sequence[Block[Expression]], wait: LocalWait, names: EntryNames
) -> tuple[Block[Expression], ...] | None:
    """Return the blocks of another entry in the rounds that a step waits for; None if no expression says them."""
    rounds = [each for each in wait.rounds if each is not None]
    counts = tuple(variable.count for variable in names.variables)
    if len(rounds) < len(wait.rounds) or wait.stop is not None:
        return None
    numbers = [number for block in blocks for number in block.numbers()]
    found = [composed(number, rounds, counts) for number in numbers]
    left = iter([number for number in found if number is not None])
    return None if None in found else tuple(each.with_numbers(left) for each in blocks)


# What is done, and where.


def queue_of(schedule: OpPlan, facts: StepFacts[Expression]) -> tuple[str, Expression | None]:
    """Return the kind of the queue that a step is in, and its number where there are several of that kind."""
    match facts.action.kind:
        case StepKind.LIBRARY:
            return "library", None
        case StepKind.PUT | StepKind.GET if schedule.engine.by_tiles:
            return "tiles", None
        case StepKind.PUT | StepKind.GET:
            return ("lane", facts.queue[0]) if facts.queue else ("copies", None)
        case StepKind.KERNEL if schedule.tactics.kernel is Kernels.PERSISTENT:
            return "kernel", None
    return "stream", facts.queue[0]


def _queue_text(schedule: OpPlan, facts: StepFacts[Expression], names: EntryNames) -> str:
    kind, number = queue_of(schedule, facts)
    return kind if number is None else f"{'copy lane' if kind == 'lane' else kind} {names.number(number)}"


@dataclass(frozen=True, slots=True)
class _Action:
    """What a step does; ``said`` are blocks that its sentence has named before, ``peers`` whom it concerns."""

    how: How
    facts: StepFacts[Expression]
    names: EntryNames
    peers: str
    said: set[str]

    def text(self) -> str:
        """Return it in words."""
        action = self.facts.action
        what = mentioned(blocks_text(self.facts.blocks, self.names), self.said) if self.facts.blocks else ""
        match action.kind:
            case StepKind.PUT if action.to_all:
                return f"put {self._taken(what)} to every rank through the switch"
            case StepKind.GET if action.to_all:
                return f"get {what} from every rank, summed by the switch"
            case StepKind.PUT if action.adds:
                return f"add {self._taken(what)} to what {self.peers} has of it"
            case StepKind.PUT:
                return f"put {self._taken(what)} to {self.peers}"
            case StepKind.GET:
                return f"get {what} from {self.peers}{' and add it to what is here' if action.adds else ''}"
            case StepKind.KERNEL:
                return self._kernel(what)
            case StepKind.SUM:
                whose = f"{PRONOUNS[what]} {action.parts} parts" if what in PRONOUNS else ""
                return f"sum {whose or f'the {action.parts} parts of {what}'}"
            case StepKind.LIBRARY:
                return library_text(self.how.scenario)

    def _taken(self, what: str) -> str:
        """Return a block, or which of two things there are of one that is summed."""
        if not self.how.scenario.shape.pattern.sums:
            return what
        summed, blocks = self.facts.action.summed, self.facts.blocks
        if 0 < summed < len(blocks):
            before, own = (blocks_text(some, self.names) for some in (blocks[:summed], blocks[summed:]))
            return f"the sum so far of {before} and the own part of {own}"
        if not summed:
            return "the own part" if what in PRONOUNS else f"the own part of {what}"
        return f"{PRONOUNS[what]} sum so far" if what in PRONOUNS else f"the sum so far of {what}"

    def _kernel(self, what: str) -> str:
        stage = self.how.scenario.shape.stage(self.facts.action.kernel)
        name = "GEMM" if stage.kernel is None else stage.kernel.operation
        cut = f", k {', '.join(map(self.names.span, self.facts.slices))}" if self.facts.inner else ""
        adds = ", added to the output" if self.facts.action.adds else ""
        return f"{name} for {what}{cut}{adds}"


def peer_axis(entry: FoldedStep, around: int) -> int | None:
    """Return the loop of ``entry`` alone on which only the peers depend, None if there is none."""
    facts = entry.facts
    if facts.action.kind not in (StepKind.PUT, StepKind.GET):
        return None
    others = [number for _, _, number in replace(facts, peer=()).numbers()]
    for axis in range(around, len(entry.counts)):
        if not any(depends_on(number, axis) for number in others):
            return axis
    return None


def _peers(facts: StepFacts[Expression], names: EntryNames, hidden: int | None) -> str:
    if not facts.peer:
        return ""
    if hidden is None:
        return f"rank {names.rank(facts.peer)}"
    return f"{'each of ' if facts.action.adds else ''}ranks {names.ranks(peer_codes(facts, names, hidden))}"


def peer_codes(facts: StepFacts[Expression], names: EntryNames, axis: int) -> list[tuple[Expression, ...]]:
    """Return the peers in all rounds of the loop that they alone depend on."""
    return [tuple(fixed(each, axis, round_) for each in facts.peer) for round_ in range(names.variables[axis].count)]


def library_text(scenario: OpCase) -> str:
    """Return the call of the library, or of the framework that sends rows to experts."""
    collective, moved = collective_in(scenario.shape.pattern), scenario.shape.moved
    assert collective is not None and moved is not None, "the library moves something"
    routed = exchange_on(scenario.system, scenario.shape)
    if routed is not None:
        return f"call {'combine' if routed.back else 'dispatch'} of {moved.name} by {routed.name}"
    return f"call {collective.value} of {moved.name}, which moves everything"
