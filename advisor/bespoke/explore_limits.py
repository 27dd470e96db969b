"""What the file asks the search to keep to: of a knob that ``explore`` names only its values are tried."""

from typing import TypeVar

from ...compiler.ir import Choice, ExecutionOptions, Explore
from ...compiler.planning.execution import OPTIONS, options_of
from ...compiler.planning.knobs import KNOBS
from ...compiler.planning.knobs.serving import DEPTH
from ...compiler.planning.knobs.structure import ALGORITHM, TEMPLATE
from ...compiler.templates import BY_NAME

Value = TypeVar("Value")


def is_asked_for(explore: Explore, choice: Choice) -> bool:
    """Whether ``choice`` has only values that ``explore`` leaves it.

    What a template does not have is not asked of it, nor is its usual algorithm.
    """
    template = BY_NAME[choice.template]
    for knob in KNOBS:
        asked, value = explore.values(knob.word), knob.of(choice)
        free = knob in (TEMPLATE, DEPTH) or not knob.has(template) or (knob is ALGORITHM and not value)
        if asked and not free and value not in asked:
            return False
    return True


def usual_options(explore: Explore) -> ExecutionOptions:
    """The usual execution options, or of a knob that the file names the first of its values."""
    asked = {knob: explore.values(word) for word, knob in OPTIONS.items()}
    return options_of({knob: usual_of(values, knob.usual) for knob, values in asked.items() if values})


def usual_of(asked: tuple[Value, ...], usual: Value) -> Value:
    """``usual``, or the first of the values that are ``asked`` for where it is none of them."""
    return usual if not asked or usual in asked else asked[0]
