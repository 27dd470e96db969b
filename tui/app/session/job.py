"""One workload on screen: its answer, runs, problems, page, and values that can be changed. No Textual."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ....advisor.answer.answer import new_runs_of
from ....advisor.candidates.advice import Advice
from ....advisor.candidates.candidate import Candidate
from ....compiler.changed import Changes
from ....compiler.ir import Scenario, Settings, System
from ....compiler.ir.step import StepScenario
from ....compiler.resolve.values.device_numbers import StatedNumber
from ....compiler.resolve.values.params import Param
from ....compiler.text.diagnostics import Diagnostic, Source
from ....compiler.text.units import NUMBER, Quantity, read_text
from ....simcore.figures.result import Result
from ....simcore.shown_run import ShownRun
from .backend import SweepAdvice, short_advice

STEP = Fraction(5, 100)
"""A step of a number of the hardware, of its value in the file: about what measurements of one GPU differ by."""


@dataclass(frozen=True, slots=True)
class ValueRow:
    """One value that can be changed; ``before`` is that of the file.

    ``origin`` says where the number comes from, ``domain`` what values it may take, and ``choices`` are those that a
    domain lists. ``quantity`` is what ``value`` amounts to, and ``base`` what steps in shares are shares of.
    """

    name: str
    value: str
    before: str
    origin: str
    source: str
    domain: str
    is_param: bool
    changed: bool
    quantity: Quantity
    base: Quantity
    choices: tuple[str, ...] = ()

    def stepped(self, steps: int, *, doubling: bool = False) -> str:
        """Return the text of the value ``steps`` further: the next of the domain, 5 % more, or with ``doubling`` twice.

        The value itself where there is no next one.
        """
        if self.choices:
            return _next_choice(self.choices, self.value, self.quantity, steps)
        now, base = self.quantity, self.base.amount
        if now.amount <= 0 or base <= 0:
            return self.value
        if doubling or self.is_param:
            amount = now.amount * Fraction(2) ** steps
            amount = Fraction(max(1, int(amount))) if _is_count(now) else amount
        elif _is_count(now):
            amount = max(Fraction(1), now.amount + steps)
        else:
            amount = base * (1 + STEP * (round((now.amount / base - 1) / STEP) + steps))
        return read_text(Quantity(amount, now.dimension)) if amount > 0 else self.value


def _is_count(quantity: Quantity) -> bool:
    return quantity.dimension == NUMBER and quantity.amount.denominator == 1


def _next_choice(choices: tuple[str, ...], value: str, quantity: Quantity, steps: int) -> str:
    """Return the choice after ``value``; of a value between two choices the nearer one in the direction of the step."""
    if value in choices:
        return choices[min(len(choices) - 1, max(0, choices.index(value) + steps))]
    numbers = [each for each in choices if each.replace(".", "", 1).isdigit()]
    beyond = [each for each in numbers if (Fraction(each) - quantity.amount) * steps > 0]
    return value if not beyond else min(beyond, key=lambda each: abs(Fraction(each) - quantity.amount))


@dataclass(frozen=True, slots=True)
class ValuesOfFile:
    """The values of a file under ``changes``: its ``params`` and ``numbers``, and those ``before`` any change."""

    params: tuple[Param, ...] = ()
    numbers: tuple[StatedNumber, ...] = ()
    before: tuple[StatedNumber, ...] = ()
    changes: Changes = field(default_factory=Changes)

    def rows(self, system: System) -> tuple[ValueRow, ...]:
        """Return what can be changed for ``system``: params, then numbers of links and switches, then of the GPU."""
        return (*map(self._of_param, self.params), *map(self._of_number, self._used(system)))

    def _used(self, system: System) -> Iterator[StatedNumber]:
        fabric, gpu = system.fabric, system.gpu
        switches = [] if fabric.switch is None else [fabric.switch.name]
        for name in dict.fromkeys([*(link.name for link in fabric.links), *switches, gpu.name]):
            yield from (each for each in self.numbers if each.device == name)

    def _of_param(self, param: Param) -> ValueRow:
        changed = param.name in dict(self.changes.params)
        return ValueRow(
            name=param.name,
            value=param.value,
            before=param.default,
            origin="param",
            source="",
            domain=param.domain or "any value",
            is_param=True,
            changed=changed,
            quantity=param.quantity,
            base=param.quantity,
            choices=param.choices,
        )

    def _of_number(self, number: StatedNumber) -> ValueRow:
        base = next((each.value for each in self.before if each.path == number.path), number.value)
        before, text = read_text(base), dict(self.changes.numbers).get(number.path)
        return ValueRow(
            name=number.path,
            value=before if text is None else text,
            before=before,
            origin=number.origin.value,
            source=number.source,
            domain="steps of 1" if _is_count(base) else "steps of 5 %",
            is_param=False,
            changed=text is not None,
            quantity=number.value,
            base=base,
        )


def with_value(changes: Changes, row: ValueRow, text: str) -> Changes:
    """Return ``changes`` with the value of ``row``; the value of the file is no change."""
    kept = changes.params if row.is_param else changes.numbers
    others = tuple(pair for pair in kept if pair[0] != row.name)
    new: Settings = others if text.strip() == row.before else (*others, (row.name, text.strip()))
    return Changes(tuple(new), changes.numbers) if row.is_param else Changes(changes.params, tuple(new))


def changed_words(changes: Changes) -> str:
    """Return the changes in one line, ``M = 4096, xgmi.achieved = 50 GB/s``."""
    return ", ".join(f"{name} = {value}" for name, value in (*changes.params, *changes.numbers))


class ProblemKind(Enum):
    """Kind of a problem; the value is the headline."""

    FILE = "The file cannot be used"
    NOTHING_FEASIBLE = "No schedule is feasible"
    CANCELLED = "Stopped"
    OUTCOME = "The simulation did not finish"
    FAULT = "Internal error"


@dataclass(frozen=True, slots=True)
class JobProblem:
    """A problem to show in place of an answer; ``text`` may have many lines."""

    kind: ProblemKind
    text: str


MOST_MARKED = 4
"""Most schedules that are compared at once."""

CANCELLED = JobProblem(ProblemKind.CANCELLED, "The run was stopped before it was done. Press e to start it again.")
GIVEN_UP = JobProblem(ProblemKind.CANCELLED, "Its simulation was stopped. Pick it again to start anew.")


class _Answer(Protocol):
    """An answer, which may have been cut short."""

    @property
    def interrupted(self) -> bool: ...


S = TypeVar("S")
A = TypeVar("A", bound=_Answer)


@dataclass(slots=True)
class FileJob(ABC, Generic[S, A]):
    """The state of what a file asks: the question ``scenario``, and its answer.

    While it is ``advising`` the answer is what would be answered now, and once the user has ``stopped`` that it stays
    so. ``picked`` names the candidate on screen. ``what_if`` are the values of the file at ``path`` from which the
    question was made.
    """

    scenario: S
    answer: A | JobProblem | None = None
    picked: str | None = None
    warnings: tuple[Diagnostic, ...] = ()
    advising: bool = False
    stopped: bool = False
    path: Path = Path()
    what_if: ValuesOfFile = field(default_factory=ValuesOfFile)

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the workload."""

    @property
    def found(self) -> A | None:
        """What was found, once there is anything."""
        return None if isinstance(self.answer, JobProblem) else self.answer

    @property
    def is_answered(self) -> bool:
        """Whether there is nothing more to find: an answer that was not cut short, a problem, or the user's stop."""
        return self.stopped or (self.answer is not None and not (self.found is not None and self.found.interrupted))

    @abstractmethod
    def take(self, answer: A) -> None:
        """Take an answer; what the user has picked stays picked."""

    def stop(self) -> None:
        """Let what was found be the answer."""
        self.stopped, self.advising, self.answer = True, False, self.answer or CANCELLED


@dataclass(slots=True)
class Job(FileJob[Scenario, Advice]):
    """The state of one workload.

    ``picked`` is the expression of the candidate on screen, ``simulating`` whether it is being simulated. ``marked``
    are the expressions of those to be compared. ``runs`` and ``problems`` of simulations are by expression.
    """

    marked: tuple[str, ...] = ()
    simulating: bool = False
    runs: dict[str, ShownRun] = field(default_factory=dict)
    problems: dict[str, JobProblem] = field(default_factory=dict)
    sweep_advice: SweepAdvice = short_advice

    @property
    def name(self) -> str:
        """The name of the workload."""
        return self.scenario.title

    @property
    def has_several_ops(self) -> bool:
        """Whether the workload has several ops."""
        return self.scenario.only_case is None

    @property
    def advice(self) -> Advice | None:
        """The advice on a pair, once there is one."""
        return None if self.has_several_ops else self.found

    def take(self, answer: Advice) -> None:
        """Take an answer with its runs; the recommended schedule stays picked unless the user has picked another."""
        before = self.found
        if self.picked is None or (before is not None and self.picked == before.recommended.expression):
            self.picked = answer.recommended.expression
        self.take_runs(answer)
        for each in answer.candidates:
            if each.problem:
                self.problems[each.expression] = JobProblem(ProblemKind.OUTCOME, each.problem)
        self.answer = answer

    def take_runs(self, answer: Advice) -> None:
        """Take the runs that an answer brings, which takes a moment where there are several ops."""
        self.runs |= new_runs_of(answer, self.runs)  # what is shown of a run is kept with it

    @property
    def run(self) -> ShownRun | None:
        """What was simulated of the picked candidate."""
        return self.runs.get(self.picked or "")

    @property
    def result(self) -> Result | None:
        """The figures of that."""
        return None if self.run is None else self.run.result

    @property
    def is_explained(self) -> bool:
        """Whether the simulation of the picked candidate is complete."""
        return self.explains(self.run)

    def explains(self, run: ShownRun | None) -> bool:
        """Whether a run has its losses explained, where that can be."""
        return run is not None and (run.result.waterfall is not None or self.has_several_ops)

    @property
    def problem(self) -> JobProblem | None:
        """Why the picked candidate could not be simulated."""
        return self.problems.get(self.picked or "")

    def give_up(self) -> None:
        """Let the picked candidate be as it is, without what its simulation would have told."""
        self.simulating = False
        if self.picked is not None and self.run is None:
            self.problems[self.picked] = GIVEN_UP

    def try_again(self) -> None:
        """Forget that the simulation of the picked candidate was stopped."""
        if self.problem is GIVEN_UP:
            del self.problems[self.picked or ""]

    def toggle_mark(self, expression: str) -> None:
        """Mark a candidate for comparison, or take its mark away; of more than ``MOST_MARKED`` the first goes."""
        if expression in self.marked:
            self.marked = tuple(each for each in self.marked if each != expression)
        else:
            self.marked = (*self.marked, expression)[-MOST_MARKED:]

    def candidate(self, expression: str) -> Candidate | None:
        """The candidate with this expression."""
        candidates = self.found.candidates if self.found is not None else ()
        return next((candidate for candidate in candidates if candidate.expression == expression), None)


# One training step on screen: its answer, and the schedule that the panes show. No Textual.

if TYPE_CHECKING:
    from ....advisor.steps.answer import StepAdvice


@dataclass(slots=True)
class StepJob(FileJob[StepScenario, "StepAdvice"]):
    """The state of one step; ``source`` is its text with the numbers of devices that were changed on screen.

    ``picked`` names the row of the schedule on screen, None the recommended one.
    """

    source: Source = field(default_factory=lambda: Source("", ""))

    @property
    def name(self) -> str:
        """The name of the step."""
        return self.scenario.name

    def take(self, answer: "StepAdvice") -> None:
        """Take an answer; what the user has picked stays picked."""
        self.answer = answer


AnyJob = Job | StepJob
"""What a file asks."""
