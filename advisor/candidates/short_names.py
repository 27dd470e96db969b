"""Short names of the schedules of one answer: lists of sizes are long, and are said once, where they can be copied."""

from collections.abc import Iterable, Mapping

from ...compiler.ir import Choice
from ...compiler.planning.expression import short_text_of

LONGEST = 48
"""Expressions with lists of sizes that are longer have a short name."""


def short_names(schedules: Iterable[tuple[str, Choice | None]]) -> Mapping[str, str]:
    """Return the short name of each long expression, such as ``bespoke (3 parts, dma(7), 2 streams)``.

    ``schedules`` are expressions with their choices, None for a plan. Several short names are numbered in their order,
    so that no two are the same.
    """
    texts = {
        expression: short_text_of(choice)
        for expression, choice in schedules
        if choice is not None and len(expression) > LONGEST and (choice.parts or choice.slices or choice.columns)
    }
    if len(texts) < 2:
        return texts
    return {
        expression: text.replace(" ", f" {number} ", 1) for number, (expression, text) in enumerate(texts.items(), 1)
    }
