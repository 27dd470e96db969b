"""The decision variables: a literal for each value of each knob, and the code of the choice they make."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ortools.sat.python import cp_model

from ...compiler.templates import ALL_TEMPLATES, Template
from .knobs import Knob, Knobs

At = Mapping[Knob, Iterable[int]]
"""Digits of some knobs; those of the others are open."""


@dataclass(frozen=True, slots=True)
class Variables:
    """Variables of one model.

    ``literals[knob][digit]`` is true if the knob has that value. ``code`` is the whole choice as a number, as in
    ``Knobs``: one variable to read instead of one for each knob.
    """

    knobs: Knobs
    literals: Mapping[Knob, tuple[cp_model.IntVar, ...]]
    code: cp_model.IntVar

    def of(self, knob: Knob, value: object) -> cp_model.IntVar:
        """The literal of a value."""
        return self.literals[knob][self.knobs.values[knob].index(value)]

    def templates(self) -> list[tuple[int, Template]]:
        """(digit, template) of all candidates."""
        return [(digit, ALL_TEMPLATES[index]) for digit, index in enumerate(self.knobs.values[Knob.TEMPLATE])]


def make_variables(model: cp_model.CpModel, knobs: Knobs, *, coded: bool) -> Variables:
    """Declare the variables of ``model``: of every knob exactly one value, and the code, tied to them if ``coded``."""
    literals = {
        knob: tuple(model.new_bool_var(f"{knob.value}_{value}") for value in knobs.values[knob]) for knob in Knob
    }
    code = model.new_int_var(0, knobs.num_codes - 1, "code")
    for each in literals.values():
        model.add_exactly_one(each)
    if not coded:
        return Variables(knobs, literals, code)
    weighted = ((literals[knob], knobs.weights[knob]) for knob in Knob)
    model.add(code == sum(digit * weight * literal for each, weight in weighted for digit, literal in enumerate(each)))
    return Variables(knobs, literals, code)
