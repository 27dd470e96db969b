"""Every feasible schedule of a scenario, or a minimal set of rules that leave none."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ...compiler.ir import Cancelled, OpCase, ShouldStop, heeding
from ...compiler.ir.stopping import never
from ...compiler.planning.knobs import Knob
from ...compiler.planning.knobs.structure import TEMPLATE
from ...compiler.templates import BASELINE, BY_NAME, Template
from .domains import RULES, At, Choices, Codes, Domains, Knobs, Varied, domains_of, dominated, knobs_of, left_out
from .memory import Absence, Assumed, NoFeasibleSchedule, Space, diverse
from .model import Solutions, SpaceModel, cp_model, make_solver, solve
from .tables import RuleTables, Table

# As many fit into memory with what is done to them; a file that asks for more gets a part.
MOST_CODES = 10_000_000
# Codes that are joined with the values of the next knob at a time.
_BLOCK = 1 << 16


def generate(scenario: OpCase, domains: Domains, is_over: ShouldStop = never) -> Codes:
    """Codes of every feasible choice, in ascending order; no more than some ``MOST_CODES``.

    ``is_over`` is asked now and then; what was found until it says so is returned.
    """
    blocks, total = list[Codes](), 0
    with suppress(Cancelled):
        for block in _blocks(RuleTables(scenario, domains, is_over=is_over), is_over):
            blocks.append(block)
            total += len(block)
            if total > MOST_CODES:
                break
    return np.concatenate(blocks) if blocks else np.empty(0, np.int64)


def _blocks(tables: RuleTables, is_over: ShouldStop) -> Iterator[Codes]:
    for digit, name in enumerate(tables.axes.values[TEMPLATE]):
        start = np.array([digit * tables.axes.weights[TEMPLATE]])
        yield from _Join(tables.axes, tables.of(BY_NAME[name]), is_over).blocks(start, 1)


class _Join:
    """The codes of one template."""

    def __init__(self, axes: Knobs, tables: Sequence[Table], is_over: ShouldStop) -> None:
        self._axes, self._order, self._is_over = axes, tuple(axes.values), is_over
        self._masks: Mapping[Knob, list[tuple[Table, npt.NDArray[np.bool_]]]] = {knob: [] for knob in self._order}
        for table in tables:
            last = max(table.knobs, key=self._order.index, default=TEMPLATE)
            self._masks[last].append((table, table.mask(axes)))

    def blocks(self, codes: Codes, position: int) -> Iterator[Codes]:
        """Extend ``codes``, which hold the first ``position`` knobs, by all allowed values of the others."""
        if self._masks[TEMPLATE] or self._is_over():
            return
        if position == len(self._order):
            yield codes
            return
        knob = self._order[position]
        values = np.arange(len(self._axes.values[knob])) * self._axes.weights[knob]
        for first in range(0, len(codes), _BLOCK):
            joined = np.add.outer(codes[first : first + _BLOCK], values).ravel()
            for table, mask in self._masks[knob]:
                joined = joined[mask[tuple(self._axes.digits(joined, each) for each in table.knobs)]]
            if len(joined):
                yield from self.blocks(joined, position + 1)


# With more combinations of values than this, feasible or not, the space is written down by the generator.
SOLVED_CODES = 200_000
TWIN = "what it does here is there under the name of another template"


@dataclass(frozen=True)
class Enumeration:
    """One enumeration: at most ``limit`` choices, with ``seed`` for the solver's search and the sample."""

    scenario: OpCase
    limit: int | None
    seed: int
    should_stop: ShouldStop

    @cached_property
    def domains(self) -> Domains:
        """The candidate values of each knob."""
        return domains_of(self.scenario)

    @cached_property
    def knobs(self) -> Knobs:
        """The values of each knob in a code."""
        return knobs_of(self.scenario, self.domains)

    def space(self, generated: bool | None) -> Space:
        """See ``enumerate_space`` in the package."""
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"a limit on the number of schedules must be positive, not {self.limit}")
        if generated if generated is not None else self.knobs.num_codes > SOLVED_CODES:
            return self._generated()
        return self._solved()

    def _generated(self) -> Space:
        """All of a large space, or with a limit a diverse sample of it."""
        legal = generate(self.scenario, self.domains, self.should_stop)
        stopped = self.should_stop() or len(legal) > MOST_CODES
        if not len(legal) and not stopped:
            raise NoFeasibleSchedule(_conflict(self.scenario, self.domains))
        codes = legal
        for places in self._dominated.values():
            codes = codes[~dominated(places, self.knobs, codes)]
        assumed, varied = self._assumed(legal), Choices(self.knobs, codes).varied()
        size = None if stopped else len(codes)
        if self.limit is not None and self.limit < len(codes):
            codes = diverse(self.knobs, codes, self.limit, self.seed)
        return self._space(Choices(self.knobs, codes), size, assumed, varied)

    def _solved(self) -> Space:
        """The solutions of the solver, until it has all, reaches the limit, or is stopped."""
        codes, complete = self._solutions()
        if not len(codes) and complete:
            raise NoFeasibleSchedule(_conflict(self.scenario, self.domains))
        choices = Choices(self.knobs, np.sort(codes))
        return self._space(choices, len(codes) if complete else None, self._assumed(None), choices.varied())

    def _solutions(self) -> tuple[Codes, bool]:
        """The codes that the solver finds, and whether they are all."""
        space_model = SpaceModel(self.scenario, self.domains, switchable=False)
        for places in self._dominated.values():
            space_model.leave_out(places)
        solver = make_solver(self.seed)
        parameters = solver.parameters
        parameters.enumerate_all_solutions = True
        # The model is clauses and one sum, and all of its solutions are asked for: there is nothing to prepare.
        parameters.cp_model_presolve, parameters.symmetry_level, parameters.linearization_level = False, 0, 0
        solutions, status = Solutions(lambda value: value(space_model.code), self.limit), cp_model.UNKNOWN
        with suppress(Cancelled), heeding(self.should_stop):
            status = solve(solver, space_model.model, solutions)
        return np.array(solutions.found, np.int64), status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)

    @cached_property
    def _dominated(self) -> dict[str, list[At]]:
        """Digits that each dominance rule leaves out, by its name; none if they are switched off."""
        if not self.scenario.explore.dominance:
            return {}
        found = {rule.name: left_out(rule, self.scenario, self.domains, self.knobs) for rule in RULES}
        return {name: places for name, places in found.items() if places}

    def _assumed(self, legal: Codes | None) -> tuple[Assumed, ...]:
        """The dominance rules in force that leave anything out, each counted for itself; none if it is stopped."""
        if not self._dominated or self.should_stop():
            return ()
        if legal is None:
            legal = generate(self.scenario, self.domains, self.should_stop)
        counts: dict[str, int] = {}
        for name, places in self._dominated.items():
            if self.should_stop():
                return ()
            counts[name] = int(dominated(places, self.knobs, legal).sum())
        return tuple(Assumed(rule.name, rule.sentence, counts[rule.name]) for rule in RULES if counts.get(rule.name))

    def _space(self, choices: Choices, size: int | None, assumed: tuple[Assumed, ...], varied: Varied) -> Space:
        """``size`` is that of the whole space, None where it is not known."""
        absent: tuple[Absence, ...] = ()
        if size == len(choices):
            present = np.unique(self.knobs.digits(choices.codes, TEMPLATE)).tolist()
            absent = self._absences({self.domains[TEMPLATE][digit] for digit in present})
        return Space(choices, size == len(choices), absent, assumed, size, varied)

    def _absences(self, present: set[str]) -> tuple[Absence, ...]:
        """Why templates that the file names have no schedule; one that is merely tried by default needs no excuse."""
        named = set(self.scenario.explore.values(TEMPLATE.word)) - {BASELINE.name} - present
        missing = [name for name in self.domains[TEMPLATE] if name in named]
        return tuple(Absence(name, explain(self.scenario, BY_NAME[name]) or (TWIN,)) for name in missing)


def explain(scenario: OpCase, template: Template | None = None) -> tuple[str, ...]:
    """A minimal set of rules that leave no schedule, or none of ``template``; empty if there is one."""
    domains = domains_of(scenario)
    return _conflict(scenario, domains if template is None else {**domains, TEMPLATE: (template.name,)})


def _conflict(scenario: OpCase, domains: Domains) -> tuple[str, ...]:
    """Sentences of rules that cannot hold together, any one of which would free the rest."""
    space_model = SpaceModel(scenario, domains, switchable=True)
    solver = make_solver(0)
    space_model.assume(space_model.families)
    if solve(solver, space_model.model) != cp_model.INFEASIBLE:
        return ()
    blamed = set(solver.sufficient_assumptions_for_infeasibility())
    core = tuple(family for family in space_model.families if family.literal.index in blamed)
    for family in core:
        without = tuple(other for other in core if other is not family)
        space_model.assume(without)
        if solve(solver, space_model.model) == cp_model.INFEASIBLE:
            core = without
    return tuple(family.sentence for family in core)
