"""The rules of a space as tables: which values of the knobs that a rule reads cannot be together, and why.

CP-SAT's clauses, the generator's masks and the explanation of an empty space all come from these tables. Tables are
made template by template, as most rules read the template.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import numpy.typing as npt

from ...compiler.ir import Cancelled, Choice, Scenario, ShouldStop
from ...compiler.ir.stopping import never
from ...compiler.planning.build import all_rules
from ...compiler.planning.knobs import Knob, Rule, ScheduleRequest, with_values
from ...compiler.planning.knobs.engine import default_engine
from ...compiler.planning.knobs.structure import TEMPLATE
from ...compiler.templates import Template
from .domains import Domains, knobs_of
from .knobs import Knobs
from .space_rules import asked_for, limits, one_name

Place = tuple[int, ...]
"""One digit for each of a few knobs."""
# How many values are looked at between two questions whether to stop.
_LOOK_EVERY = 1024


@dataclass(frozen=True)
class Table:
    """The places that one rule forbids, with the message for each.

    ``knobs`` are those it reads but the template. ``sentence`` says what the rule is, None where each message is a
    rule of its own. Rules that are not ``explained`` only keep two solutions from being one schedule. Tables that are
    not ``of_template`` are the same for all; ``order`` is the place of the rule among all.
    """

    knobs: tuple[Knob, ...]
    forbidden: Mapping[Place, str]
    sentence: Callable[[], str] | None = None
    explained: bool = True
    of_template: bool = True
    order: int = 0

    def mask(self, axes: Knobs) -> npt.NDArray[np.bool_]:
        """Whether the rule allows each place, an axis for each knob."""
        allowed = np.ones([len(axes.values[knob]) for knob in self.knobs], bool)
        if self.forbidden:
            allowed[tuple(np.array(list(self.forbidden)).T)] = False
        return allowed


@dataclass(frozen=True, slots=True)
class _Read:
    """A rule with the knobs of this space that it reads, but the template.

    ``feasible`` says whether it is one of what is feasible; the others are of the search.
    """

    rule: Rule
    knobs: tuple[Knob, ...]
    explained: bool
    feasible: bool
    order: int


class RuleTables:
    """The tables of one scenario; ``axes`` has the values of every knob.

    Rules of several knobs are tabulated for values that no rule of one knob forbids: of all rules, or if ``guarded``
    of those that are always in force.
    """

    def __init__(
        self, scenario: Scenario, domains: Domains, *, guarded: bool = False, is_over: ShouldStop = never
    ) -> None:
        self.axes = knobs_of(scenario, domains)
        self._scenario, self._guarded, self._is_over = scenario, guarded, is_over
        by_word = {knob.word: knob for knob in self.axes.values if knob is not TEMPLATE}
        rules = (
            *((rule, False, False) for rule in one_name(scenario, domains)),
            *((rule, True, False) for rule in asked_for(scenario, domains)),
            *((rule, True, True) for rule in all_rules()),
            *((rule, True, False) for rule in limits(scenario, domains)),
        )
        read = (
            _Read(rule, tuple(by_word[word] for word in rule.knobs if word in by_word), explained, feasible, order)
            for order, (rule, explained, feasible) in enumerate(rules)
        )
        self._rules = sorted(read, key=lambda each: len(each.knobs))
        self._for_all: dict[int, Table] = {}
        self._looked = 0

    def of(self, template: Template) -> tuple[Table, ...]:
        """The tables of every rule for one template; of one for another pattern few others mean anything."""
        usual = Choice(template.name, self._scenario.num_ranks, default_engine(self._scenario.system))
        allowed = {knob: list(range(len(values))) for knob, values in self.axes.values.items()}
        fits = self._scenario.workload.pattern in template.patterns
        found: list[Table] = []
        for read in self._rules:
            if not fits and read.feasible and read.knobs and TEMPLATE.word in read.rule.knobs:
                continue
            table = self._table(read, usual, allowed)
            if not table.forbidden:
                continue
            found.append(table)
            if not (table.knobs or self._guarded):
                return (table,)
            if len(table.knobs) == 1 and not (table.explained and self._guarded):
                (knob,) = table.knobs
                allowed[knob] = [digit for digit in allowed[knob] if (digit,) not in table.forbidden]
        return tuple(found)

    def _table(self, read: "_Read", usual: Choice, allowed: Mapping[Knob, list[int]]) -> Table:
        if TEMPLATE.word in read.rule.knobs:
            return self._tabulated(read, usual, allowed, of_template=True)
        if read.order not in self._for_all:
            every = {knob: list(range(len(values))) for knob, values in self.axes.values.items()}
            self._for_all[read.order] = self._tabulated(read, usual, every, of_template=False)
        return self._for_all[read.order]

    def _tabulated(
        self, read: "_Read", usual: Choice, allowed: Mapping[Knob, list[int]], *, of_template: bool
    ) -> Table:
        forbidden: dict[Place, str] = {}
        for place in product(*(allowed[knob] for knob in read.knobs)):
            self._look()
            values = {knob: self.axes.values[knob][digit] for knob, digit in zip(read.knobs, place, strict=True)}
            rejection = read.rule.reject(ScheduleRequest(self._scenario, with_values(usual, values)))
            if rejection is not None:
                forbidden[place] = rejection.message
        sentence = None if read.rule.sentence is None else partial(read.rule.sentence, self._scenario)
        return Table(read.knobs, forbidden, sentence, read.explained, of_template, read.order)

    def _look(self) -> None:
        self._looked += 1
        if self._looked % _LOOK_EVERY == 0 and self._is_over():
            raise Cancelled
