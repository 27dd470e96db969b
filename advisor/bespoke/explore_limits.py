"""What the file asks the search to keep to: of a knob that ``explore`` names only its values are tried."""

from dataclasses import replace
from typing import TypeVar

from ...compiler.ir import Choice, ExecutionOptions, Explore, Kernels, Wait
from ...compiler.templates import BY_NAME

Word = TypeVar("Word")
# A persistent kernel looks for what it waits for.
USUAL_WAITS = {Kernels.LAUNCHED: Wait.EVENT, Kernels.PERSISTENT: Wait.POLL}


def is_asked_for(explore: Explore, choice: Choice) -> bool:
    """Whether ``choice`` has only values that ``explore`` leaves it."""
    tactics, template = choice.tactics, BY_NAME[choice.template]
    knobs: list[tuple[tuple[object, ...], object]] = [
        (explore.engines, choice.engine),
        (explore.directions, tactics.direction),
        (explore.protocols, tactics.protocol),
        (explore.kernels, tactics.kernel),
        (explore.waits, tactics.wait),
        (explore.waits_per, tactics.per),
        (explore.launches, tactics.launch),
        (explore.orders, choice.order),
    ]
    if template.has_streams:
        knobs.append((explore.streams, choice.streams))
    if template.cuts_shards:
        knobs.append((explore.chunks, choice.chunks))
    if template.has_algorithm and choice.algorithm:
        knobs.append((explore.algorithms, choice.algorithm))
    return all(not asked or value in asked for asked, value in knobs)


def usual_tactics(explore: Explore) -> ExecutionOptions:
    """The usual tactics, or of a knob that the file names the first of its values."""
    usual = ExecutionOptions()
    kernel = usual_of(explore.kernels, usual.kernel)
    return replace(
        usual,
        kernel=kernel,
        wait=usual_of(explore.waits, USUAL_WAITS[kernel]),
        direction=usual_of(explore.directions, usual.direction),
        protocol=usual_of(explore.protocols, usual.protocol),
        per=usual_of(explore.waits_per, usual.per),
        launch=usual_of(explore.launches, usual.launch),
    )


def usual_of(asked: tuple[Word, ...], usual: Word) -> Word:
    """``usual``, or the first of the values that are ``asked`` for where it is none of them."""
    return usual if not asked or usual in asked else asked[0]
