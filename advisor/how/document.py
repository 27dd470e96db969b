"""How to carry out a schedule as a JSON document: plain dicts, with every step and the places that it stands for."""

from ...compiler.ir import JsonObject
from .code import code_lines
from .how import How
from .intro import intro_lines
from .words import Told, told_steps


def how_document(how: How) -> JsonObject:
    """Return the document: what is taken for granted, the steps of each group of ranks, and pseudo-code."""
    told = told_steps(how)
    return {
        "schedule": how.schedule.expression,
        "intro": list(intro_lines(how)),
        "groups": [
            {
                "ranks": list(group.ranks),
                "naming": group.frame.naming.value,
                "steps": [_step_document(line) for line in told if line.group == number],
            }
            for number, group in enumerate(how.groups)
        ],
        "code": list(code_lines(how)),
    }


def _step_document(line: Told) -> JsonObject:
    """Return one line; ``places`` are those in the list of steps of each of its ranks, null for the head of a loop."""
    entry = line.entry
    return {
        "number": line.number,
        "text": line.text,
        "kind": "loop" if entry is None else entry.facts.action.kind.value,
        "places": None if entry is None else list(entry.places),
    }
