"""The limits that the file sets to the search: of a knob that ``explore`` names, only the named values are tried."""

from typing import TypeVar

from ...compiler.ir import Choice, ExecutionOptions, Explore
from ...compiler.planning.expression import OPTIONS, options_of
from ...compiler.planning.knobs import KNOBS
from ...compiler.planning.knobs.structure import ALGORITHM, DEPTH, ORDER, TEMPLATE
from ...compiler.templates import BY_NAME

Value = TypeVar("Value")


def is_explored(explore: Explore, choice: Choice) -> bool:
    """Whether all knobs of ``choice`` have values that ``explore`` allows.

    A knob that its template does not have may have any value, except the order: without that knob it is the usual one.
    So may the usual algorithm.
    """
    template = BY_NAME[choice.template]
    for knob in KNOBS:
        asked, value = explore.values(knob.word), knob.of(choice)
        lacking = not knob.has(template) and knob is not ORDER
        free = lacking or knob in (TEMPLATE, DEPTH) or (knob is ALGORITHM and not value)
        if asked and not free and value not in asked:
            return False
    return True


def usual_options(explore: Explore) -> ExecutionOptions:
    """Return the usual execution options; a knob that ``explore`` names without its usual value has the first named."""
    asked = {knob: explore.values(word) for word, knob in OPTIONS.items()}
    return options_of({knob: usual_or_first(values, knob.usual) for knob, values in asked.items() if values})


def usual_or_first(explored: tuple[Value, ...], usual: Value) -> Value:
    """Return ``usual`` if ``explored`` is empty or contains it, else the first of the explored values."""
    return usual if not explored or usual in explored else explored[0]
