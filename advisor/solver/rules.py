"""Rules of a feasible schedule as clauses: what must not be together, guarded by a literal of its family."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from ortools.sat.python import cp_model

from ...compiler.ir import Rejection
from .variables import At, Variables


@dataclass(frozen=True, slots=True)
class Rule:
    """A family of constraints: in force while ``literal`` is true, always without one; ``sentence`` says what it is."""

    literal: cp_model.IntVar | None
    sentence: str


class Rules:
    """Adds rules to a model, and keeps those that have a sentence."""

    def __init__(self, model: cp_model.CpModel, variables: Variables, *, switchable: bool) -> None:
        self._model, self.variables, self._switchable = model, variables, switchable
        self.added: list[Rule] = []

    def rule(self, sentence: str) -> Rule:
        """A new family."""
        literal = self._model.new_bool_var(f"rule_{len(self.added)}") if self._switchable else None
        rule = Rule(literal, sentence)
        self.added.append(rule)
        return rule

    def forbid(self, at: At, rule: Rule | None = None) -> None:
        """No choice has one of these digits of every knob named; under ``rule``, or always."""
        guard = [] if rule is None or rule.literal is None else [~rule.literal]
        literals = self.variables.literals
        for digits in product(*(tuple(each) for each in at.values())):
            clause = [~literals[knob][digit] for knob, digit in zip(at, digits, strict=True)]
            self._model.add_bool_or([*guard, *clause])

    def forbid_rejected(self, found: Iterable[tuple[Rejection | None, At]]) -> None:
        """One family for each message, which is its sentence; what is not rejected is allowed."""
        families: dict[str, list[At]] = {}
        for rejection, at in found:
            if rejection is not None:
                families.setdefault(rejection.message, []).append(at)
        for message, places in families.items():
            rule = self.rule(message)
            for at in places:
                self.forbid(at, rule)


def listed(words: Sequence[str], last: str = "and") -> str:
    """``a, b and c``."""
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else "".join(words)


def size_text(num_bytes: int) -> str:
    """A size for reading, in the largest binary unit that leaves at least one.

    >>> size_text(117_440_512), size_text(1500), size_text(100)
    ('112 MiB', '1.5 KiB', '100 B')
    """
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if num_bytes >= 1 << 10 * power:
            return f"{num_bytes / (1 << 10 * power):.1f}".removesuffix(".0") + f" {unit}"
    return f"{num_bytes} B"
