"""From the body of a request to a question about a whole layer: a model with its sharding, or the text of a graph."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...advisor import AdviceOptions, LayerRequest, RequestError, model_of
from ...compiler.codes import Code
from ...compiler.ir import GraphScenario, Settings
from ...compiler.pipeline import compile_text
from ...compiler.text.diagnostics import CompileError
from .questions import MOST_RANKS, check_keys, object_of_body, options_of

OF_MODEL = (
    "model",
    "name",
    "gpu",
    "tp",
    "tokens",
    "backward",
    "sequence_parallel",
    "node",
    "engines",
    "staging_bytes",
    "implementations",
)
OF_TEXT = ("text", "workload", "settings")
SPENDING = ("simulate", "within_s", "bespoke")
KEYS = (*OF_MODEL, *OF_TEXT, *SPENDING)

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

    def subject(self) -> LayerRequest | GraphScenario:
        """Return what is asked about; of a text that is compiled here.

        Raises
        ------
        RequestError
            If the text has an error, its workload is no graph, or its system is too large for a service.
        """
        return _compiled(self) if self.request is None else self.request


def _compiled(question: LayerQuestion) -> GraphScenario:
    try:
        scenario = compile_text(question.text, _NOWHERE, question.settings).scenario(question.workload)
    except CompileError as error:
        first = error.first
        if first.code is Code.MGS120:
            hint = "send one text: files of the service's machine are not for its clients"
            raise RequestError(first.code, "text", "it asks for a file", hint) from None
        line = first.span.location.line
        raise RequestError(first.code, "text", f"line {line}: {first.message}"[:400], first.hint[:400]) from None
    if scenario.pair is not None:
        hint = "say workload, or ask /v1/recommend about pairs"
        raise RequestError(Code.MGS520, "text", "the workload is no graph", hint)
    if scenario.num_ranks > MOST_RANKS:
        message = f"{scenario.num_ranks} GPUs are more than {MOST_RANKS}, which this service answers"
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
    check_keys(document, KEYS)
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


def _request(document: dict[str, Any]) -> LayerRequest:
    name = document.get("name", "model")
    if not isinstance(name, str):
        raise RequestError(Code.MGS310, "name", "it is no text")
    if not isinstance(document["model"], dict):
        raise RequestError(Code.MGS310, "model", "it is no object", "the content of a config.json of transformers")
    for field in ("gpu", "tp", "tokens"):
        if field not in document:
            raise RequestError(Code.MGS209, field, "none is given")
    if isinstance(document["tp"], int) and document["tp"] > MOST_RANKS:
        raise RequestError(Code.MGS307, "tp", f"{document['tp']!r:.40} are more than {MOST_RANKS}")
    fields = {key: document[key] for key in OF_MODEL if key in document and key not in ("model", "name")}
    return LayerRequest(model_of(document["model"], name), **fields)


def _of_text(document: dict[str, Any], options: AdviceOptions) -> LayerQuestion:
    text, workload, settings = document["text"], document.get("workload"), document.get("settings", {})
    if not isinstance(text, str):
        raise RequestError(Code.MGS310, "text", "it is no text")
    if workload is not None and not isinstance(workload, str):
        raise RequestError(Code.MGS310, "workload", "it is no text")
    if not isinstance(settings, dict) or any(type(value) not in (str, int) for value in settings.values()):
        raise RequestError(Code.MGS310, "settings", "it is no object of names and values", '{"M": 4096}')
    return LayerQuestion(None, options, text, workload, tuple((name, str(value)) for name, value in settings.items()))
