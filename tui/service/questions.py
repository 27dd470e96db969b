"""From the body of a request to a question: a ``Request``, a layer of a model, or a text; and what to spend on it."""

import json
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ...advisor import (
    Advice,
    AdviceOptions,
    LayerRequest,
    LayoutQuestion,
    ModelQuestion,
    Request,
    RequestError,
    layout_question,
    model_of,
    model_question,
)
from ...compiler.codes import Code
from ...compiler.ir import JsonObject, Scenario, Settings, ShouldStop
from ...compiler.ir.step import StepScenario
from ...compiler.pipeline import compile_text
from ...compiler.text.diagnostics import CompileError, did_you_mean, listing
from ...compiler.text.json_forms import MAX_NAME, members_once
from .openapi import MOST_BESPOKE, MOST_RANKS, OF_MODEL, OF_TEXT, answer_document

FIELDS = tuple(field.name for field in fields(Request) if field.name not in ("system_file", "system"))
"""Fields of a ``Request`` that a body may have: files of the service's machine are not for its clients."""

SPENDING = ("simulate", "within_s", "bespoke", "plan", "advice")


@dataclass(frozen=True, slots=True)
class Question:
    """A request, the options of its advice, and what the answer holds besides: the plan, and all of the advice."""

    request: Request
    options: AdviceOptions
    with_plan: bool = False
    with_advice: bool = False

    def answer(self, advice: Advice) -> JsonObject:
        """Return the answer in short, with what it is to hold besides."""
        return answer_document(advice, with_plan=self.with_plan, with_advice=self.with_advice)


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
    _check_most(document, "ranks", MOST_RANKS, ", which this service answers")
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
    _check_most(document, "bespoke", MOST_BESPOKE)
    bespoke = document.get("bespoke", AdviceOptions().bespoke)
    return AdviceOptions(verify=_flag(document, "simulate"), bespoke=bespoke, within_s=min(within_s, most_s))


def object_of_body(body: bytes) -> dict[str, Any]:
    """Return the JSON object that a body is.

    Raises
    ------
    RequestError
        If it is none.
    """
    try:
        document = json.loads(body.decode("utf-8"), object_pairs_hook=members_once, parse_int=_whole)
    except UnicodeDecodeError as error:
        raise RequestError(Code.MGS107, "body", f"no JSON: byte {error.start} is no UTF-8") from None
    except RecursionError:
        raise RequestError(Code.MGS107, "body", "no JSON: brackets are nested too deeply") from None
    except ValueError as error:
        raise RequestError(Code.MGS107, "body", f"no JSON: {error}"[:200]) from None
    if not isinstance(document, dict):
        raise RequestError(Code.MGS107, "body", "no JSON object", 'for instance {"pattern": "AG+GEMM", ...}')
    return document


def _whole(digits: str) -> int:
    if len(digits) > MAX_NAME:
        raise ValueError(f"a number has {len(digits)} digits, at most {MAX_NAME} are read")
    return int(digits)


def _check_most(document: dict[str, Any], key: str, most: int, why: str = "") -> None:
    if isinstance(document.get(key), int) and document[key] > most:
        raise RequestError(Code.MGS307, key, f"{document[key]!r:.40} are more than {most}{why}")


def _text(document: dict[str, Any], key: str, default: str | None) -> Any:
    value = document.get(key, default)
    if not isinstance(value, str) and value is not default:
        raise RequestError(Code.MGS310, key, "it is no text")
    return value


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


LAYER_KEYS = (*OF_MODEL, *OF_TEXT, "simulate", "within_s", "bespoke")

# A file is no folder: what a text includes or imports lies beside it, and nothing does.
_NOWHERE = str(Path(os.devnull) / "question.mgs")


@dataclass(frozen=True, slots=True)
class LayerQuestion:
    """A layer of a model, or a text with its workload and settings; one of both. ``options`` are for its advice."""

    request: LayerRequest | None
    options: AdviceOptions
    text: str = ""
    workload: str | None = None
    settings: Settings = ()

    def subject(self) -> LayerRequest | Scenario | StepScenario:
        """Return the scenario of the question, or the training step of its text if that has one.

        Raises
        ------
        RequestError
            If the text has an error, or its system is too large for a service.
        """
        return _compiled(self) if self.request is None else self.request

    def about_step(self, step: StepScenario, should_stop: ShouldStop) -> JsonObject:
        """Return the answer about the training step that is the subject."""
        from ...advisor.steps.answer import advise_step  # few questions are about one

        return advise_step(self.text, _NOWHERE, self.settings, step.name, should_stop=should_stop).document()


def _compiled(question: LayerQuestion) -> Scenario | StepScenario:
    try:
        compiled = compile_text(question.text, _NOWHERE, question.settings)
        scenario = compiled.step(question.workload) or compiled.scenario(question.workload)
    except CompileError as error:
        first = error.first
        if first.code is Code.MGS120:
            hint = "send one text: files of the service's machine are not for its clients"
            raise RequestError(first.code, "text", "it asks for a file", hint) from None
        line = first.span.location.line
        raise RequestError(first.code, "text", f"line {line}: {first.message}"[:400], first.hint[:400]) from None
    if scenario.system.num_ranks > MOST_RANKS:
        message = f"{scenario.system.num_ranks} GPUs are more than {MOST_RANKS}, which this service answers"
        raise RequestError(Code.MGS307, "text", message)
    return scenario


def layer_question_of(body: bytes, most_s: float) -> LayerQuestion:
    """Return the question in a JSON ``body``; the answer takes at most about ``most_s``.

    Raises
    ------
    RequestError
        If the body is no JSON object of the known keys, or these do not fit together.
    """
    document = object_of_body(body)
    check_keys(document, LAYER_KEYS)
    options = options_of(document, most_s)
    if "text" in document:
        for key in OF_MODEL:
            if key in document:
                raise RequestError(Code.MGS206, key, "the text says it", "leave one of them out")
        return _of_text(document, options)
    for key in OF_TEXT:
        if key in document:
            raise RequestError(Code.MGS209, "text", f"{key} is about a text, and none is given")
    if "model" not in document:
        raise RequestError(Code.MGS209, "model", "none is given", "the content of a config.json, or text: a .mgs file")
    return LayerQuestion(_request(document), options)


OF_SERVING = ("prefill", "decode", "keys", "sequences")
ASK_KEYS = ("model", "gpu", "for", "gpus", "tp", "dp", "ep", *OF_SERVING, "train", "seq_len", "micro_batch")
LAYOUT_KEYS = ("model", "gpu", "for", "gpus", *OF_SERVING)


def model_question_of(body: bytes) -> ModelQuestion | LayoutQuestion:
    """Return the question of ``magus ask`` in a JSON ``body``; a model is one that ships, or what is in a config.json.

    With ``gpus`` it is which layout serves best.

    Raises
    ------
    RequestError
        If the body is no JSON object of the known keys, or these do not fit together.
    """
    document = object_of_body(body)
    check_keys(document, ASK_KEYS)
    for field, kind in (("model", (str, dict)), ("gpu", (str,)), ("for", (str,))):
        if field not in document:
            raise RequestError(Code.MGS209, field, "none is given")
        if not isinstance(document[field], kind):
            raise RequestError(Code.MGS310, field, "it is no text" if len(kind) == 1 else "it is no text and no object")
    model = document["model"]
    if isinstance(model, str) and model.endswith(".json"):
        hint = "send the content of the config.json: files of the service's machine are not for its clients"
        raise RequestError(Code.MGS120, "model", "it asks for a file", hint)
    if not isinstance(document.get("train", False), bool):
        raise RequestError(Code.MGS310, "train", "it is neither true nor false")
    if "gpus" in document:
        for key in document:
            if key not in LAYOUT_KEYS:
                raise RequestError(
                    Code.MGS206, key, "with gpus all layouts that serve are compared", f"leave out {key}"
                )
        sizes = {key: document[key] for key in OF_SERVING if key in document}
        return layout_question(model, document["gpu"], document["for"], document["gpus"], **sizes)
    rest = {key: value for key, value in document.items() if key not in ("model", "gpu", "for")}
    question = model_question(model, document["gpu"], document["for"], **rest)
    if question.tp * question.dp > MOST_RANKS:
        raise RequestError(Code.MGS307, "tp", f"{question.tp * question.dp} GPUs are more than {MOST_RANKS}")
    return question


def _request(document: dict[str, Any]) -> LayerRequest:
    name = _text(document, "name", "model")
    if not isinstance(document["model"], dict):
        raise RequestError(Code.MGS310, "model", "it is no object", "the content of a config.json of transformers")
    for field in ("gpu", "tp", "tokens"):
        if field not in document:
            raise RequestError(Code.MGS209, field, "none is given")
    _check_most(document, "tp", MOST_RANKS)
    fields = {key: document[key] for key in OF_MODEL if key in document and key not in ("model", "name")}
    return LayerRequest(model_of(document["model"], name), **fields)


def _of_text(document: dict[str, Any], options: AdviceOptions) -> LayerQuestion:
    text, workload = _text(document, "text", ""), _text(document, "workload", None)
    settings = document.get("settings", {})
    if not isinstance(settings, dict) or any(type(value) not in (str, int) for value in settings.values()):
        raise RequestError(Code.MGS310, "settings", "it is no object of names and values", '{"M": 4096}')
    return LayerQuestion(None, options, text, workload, tuple((name, str(value)) for name, value in settings.items()))
