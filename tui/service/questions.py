"""From the body of a request to a question: the fields of a ``Request``, and what to spend on it."""

import json
from dataclasses import dataclass, fields
from typing import Any

from ...advisor import AdviceOptions, Request, RequestError
from ...compiler.codes import Code
from ...compiler.text.diagnostics import did_you_mean, listing
from ...compiler.text.json_items import members_once

FIELDS = tuple(field.name for field in fields(Request) if field.name not in ("system_file", "system"))
"""Fields of a ``Request`` that a body may have: files of the service's machine are not for its clients."""

MOST_RANKS = 1024
"""Larger systems take minutes and gigabytes, which a client may not spend here."""

MOST_BESPOKE = 100_000
SPENDING = ("simulate", "within_s", "bespoke", "plan", "advice")


@dataclass(frozen=True, slots=True)
class Question:
    """A request, the options of its advice, and what the answer holds besides: the plan, and all of the advice."""

    request: Request
    options: AdviceOptions
    with_plan: bool = False
    with_advice: bool = False


def question_of(body: bytes, most_s: float) -> Question:
    """Return the question in a JSON ``body``; the answer takes at most about ``most_s``.

    Raises
    ------
    RequestError
        If the body is no JSON object of the known keys, or the request does not fit together.
    """
    document = object_of_body(body)
    check_keys(document, (*FIELDS, *SPENDING))
    if "pattern" not in document:
        raise RequestError(Code.MGS209, "pattern", "none is given", "for instance AG+GEMM")
    ranks = document.get("ranks")
    if isinstance(ranks, int) and ranks > MOST_RANKS:
        raise RequestError(
            Code.MGS307, "ranks", f"{ranks!r:.40} are more than {MOST_RANKS}, which this service answers"
        )
    request = Request(**{key: value for key, value in document.items() if key in FIELDS})
    options = options_of(document, most_s)
    return Question(request, options, _flag(document, "plan", False), _flag(document, "advice", False))


def check_keys(document: dict[str, Any], known: tuple[str, ...]) -> None:
    """Check that a document has no other keys than the ``known``.

    Raises
    ------
    RequestError
        If it has.
    """
    for key in document:
        if key not in known:
            hint = did_you_mean(key, known) or f"keys are {listing(known)}"
            raise RequestError(Code.MGS201, key[:64], "unknown key", hint)


def options_of(document: dict[str, Any], most_s: float) -> AdviceOptions:
    """Return what a question may cost: what it says, and at most ``most_s``.

    Raises
    ------
    RequestError
        If a number or a flag is none.
    """
    within_s = _number(document, "within_s", most_s)
    bespoke = document.get("bespoke", AdviceOptions().bespoke)
    if isinstance(bespoke, int) and bespoke > MOST_BESPOKE:
        raise RequestError(Code.MGS307, "bespoke", f"{bespoke!r:.40} are more than {MOST_BESPOKE}")
    return AdviceOptions(verify=_flag(document, "simulate"), bespoke=bespoke, within_s=min(within_s, most_s))


def object_of_body(body: bytes) -> dict[str, Any]:
    """Return the JSON object that a body is.

    Raises
    ------
    RequestError
        If it is none.
    """
    try:
        document = json.loads(body.decode("utf-8"), object_pairs_hook=members_once)
    except (ValueError, RecursionError) as error:
        raise RequestError(Code.MGS107, "body", f"no JSON: {error}"[:200]) from None
    if not isinstance(document, dict):
        raise RequestError(Code.MGS107, "body", "no JSON object", 'for instance {"pattern": "AG+GEMM", ...}')
    return document


def _flag(document: dict[str, Any], key: str, default: bool = True) -> bool:
    value = document.get(key, default)
    if not isinstance(value, bool):
        raise RequestError(Code.MGS310, key, f"{value!r:.40} is neither true nor false")
    return value


def _number(document: dict[str, Any], key: str, default: float) -> float:
    value = document.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100_000:
        raise RequestError(Code.MGS307, key, f"{value!r:.40} is not a number from 0 to 100000")
    return value
