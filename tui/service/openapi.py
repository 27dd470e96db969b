"""The OpenAPI document of the service, made of the same lists that its checks are made of."""

from collections.abc import Callable, Mapping

from ... import __version__
from ...advisor.answer.export import ADVICE_SCHEMA, advice_document
from ...advisor.candidates.advice import Advice, Confidence
from ...advisor.questions.layouts import MOST_GPUS
from ...advisor.questions.question import MOST_COUNT
from ...compiler.ir import DType, JsonObject
from ...compiler.request.request import MAX_BYTES, PATTERNS, TOPOLOGIES
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.text.json_forms import list_of, object_of, one_of, whole_number
from ...compiler.text.vocabulary import MAX_EXTENT

MOST_RANKS = 1024
"""Larger systems take minutes and gigabytes, which a client may not spend here."""

MOST_BESPOKE = 100_000

_WORD, _NUMBER, _WHOLE, _FLAG, _OBJECT = (
    {"type": kind} for kind in ("string", "number", "integer", "boolean", "object")
)
_OR_NULL, _NUMBER_OR_NULL, _WHOLE_OR_NULL, _OBJECT_OR_NULL = (
    {"type": [kind, "null"]} for kind in ("string", "number", "integer", "object")
)
_WORDS, _OBJECTS = ({"type": "array", "items": each} for each in (_WORD, _OBJECT))
_COUNT, _RANKS = whole_number(0, MAX_EXTENT), whole_number(1, MOST_RANKS)
_POSITIVE = whole_number(1, MAX_EXTENT)
_INTERVAL: JsonObject = {"type": ["array", "null"], "items": _NUMBER}
_CONFIDENCE = one_of([each.value for each in Confidence])
_VERDICT = one_of([verdict.value for verdict in Verdict])
_OF_BOTH: JsonObject = {
    "engines": list_of(_WORD, 64),
    "staging_bytes": {**_WHOLE_OR_NULL, "minimum": 0},
    "implementations": list_of(_WORD, 64),
}
"""What every question about schedules may limit."""


def _about(schema: JsonObject, description: str) -> JsonObject:
    return {**schema, "description": description}


_GPU = _about(_WORD, "a GPU that ships, or the name that its driver gives it")
_WITHIN = _about({**_NUMBER, "minimum": 0}, "the best found by then")


def _whole_object(properties: JsonObject) -> JsonObject:
    """An answer: all of its members are there."""
    return object_of(properties, tuple(properties))


OF_MODEL: JsonObject = {
    "model": _about(_OBJECT, "the content of a config.json of transformers"),
    "name": _about(_WORD, "of the model, where its configuration has none"),
    "gpu": _GPU,
    "tp": whole_number(2, MOST_RANKS),
    "tokens": _about(_POSITIVE, "rows that all ranks hold together"),
    "backward": _about(_FLAG, "the backward pass with weight gradients; default false"),
    "sequence_parallel": _about(_FLAG, "default true"),
    "decode": _about(_POSITIVE, "keys of each sequence in a step of decode"),
    "node": _about(_RANKS, "GPUs of one node; default 8"),
    **_OF_BOTH,
}
OF_TEXT: JsonObject = {
    "text": _about(_WORD, "instead of a model: a .mgs file without other files"),
    "workload": _about(_OR_NULL, "of the text; default: the first"),
    "settings": _about(_OBJECT, "of the text: values of its parameters by name"),
}
"""What a question about a layer may say of its model, and what of a text instead."""


def _layer_question() -> JsonObject:
    """A model with gpu, tp and tokens, or a text."""
    spending = {
        "simulate": _about(_FLAG, "false tries no small changes; default true"),
        "within_s": _WITHIN,
        "bespoke": whole_number(0, MOST_BESPOKE),
    }
    of_either = [{"required": ["model", "gpu", "tp", "tokens"]}, {"required": ["text"]}]
    return object_of(OF_MODEL | OF_TEXT | spending, ()) | {"oneOf": of_either}


def _advice() -> JsonObject:
    """All of the advice, the document of ``magus advise --json``."""
    of_all = {
        "schema": {"const": ADVICE_SCHEMA},
        "scenario": _WORD,
        "workload": _WORD,
        "pattern": _OR_NULL,
        "recommended": _WORD,
        "verdict": _VERDICT,
        "headline": _OR_NULL,
        "speedup_vs_serial": _NUMBER,
        **dict.fromkeys(("promised", "in_graph", "on_host", "error"), _NUMBER_OR_NULL),
        "interval": _INTERVAL,
        "outside": _OR_NULL,
        "serial": _WORD,
        "baseline": _OBJECT,
        "library": _OBJECT_OR_NULL,
        "implementations": _OBJECT_OR_NULL,
        "lower_bound_us": _NUMBER_OR_NULL,
        "bound": _OBJECT_OR_NULL,
        "gap_to_bound": _NUMBER_OR_NULL,
        "confidence": _CONFIDENCE,
        "confidence_reason": _WORD,
        **dict.fromkeys(("sensitivity", "threshold", "routing_draws"), _OBJECT_OR_NULL),
        "reasons": _WORDS,
        "how": _OBJECT_OR_NULL,
        "ties": _WORDS,
        "given_up": _OBJECT_OR_NULL,
        "marks": _WORDS,
        "outside_calibration": _WORDS,
        "interrupted": _FLAG,
        "notes": _WORDS,
        "num_feasible": _WHOLE_OR_NULL,
        "candidates": _OBJECTS,
        "result": _OBJECT_OR_NULL,
        "serial_result": _OBJECT_OR_NULL,
        "timing": _OBJECT,
    }
    of_several = {
        "layers": _COUNT,
        "block": _about(_OR_NULL, "the recommended schedule for the file"),
        "ops": {"type": "array", "items": _op()},
        "kernels_us": _NUMBER,
        "copier": _WORD,
        "searched": _COUNT,
        "imbalance": _OBJECT_OR_NULL,
    }
    return object_of(of_all | of_several, tuple(of_all))


def _op() -> JsonObject:
    times = ("begin_us", "end_us", "comm_us", "exposed_us", "alone_us", "whole_us")
    words = {"name": _WORD, "pattern": _WORD, "how": _OR_NULL, "alone": _OR_NULL, "hidden_by": _OBJECTS}
    return _whole_object(words | dict.fromkeys(times, _NUMBER_OR_NULL))


SCHEMA = "magus-answer/1"
PATH, LAYER_PATH, ASK_PATH = "/v1/recommend", "/v1/recommend_layer", "/v1/ask"
_ERRORS = {
    "400": "the request is wrong: a code, the field, and what to do instead",
    "403": "the names in Host and Origin are not those of the service",
    "408": "the body did not come in time",
    "413": "the body is too large",
    "422": "no schedule is feasible under the limits",
    "503": "too many questions wait, or no answer came in time; Retry-After says when to ask again",
}


def openapi_document() -> JsonObject:
    """Return the document, OpenAPI 3.1."""
    layer = "Which schedule to use for all ops of a layer together"
    recommend = _post("recommend", "Which schedule to use", "Question", "Answer")
    recommend_layer = _post("recommendLayer", layer, "LayerQuestion", "Advice", "StepAdvice")
    switches = "What to switch on for a model with a framework"
    ask = _post("ask", switches, "AskQuestion", "AskAnswer", "LayoutsAnswer")
    schemas = {
        "AskQuestion": _ask_question(),
        "AskAnswer": _ask_answer(),
        "LayoutsAnswer": _layouts_answer(),
        "Question": _question(),
        "Answer": _answer(),
        "LayerQuestion": _layer_question(),
        "Advice": _advice(),
        "StepAdvice": _whole_object(
            {
                "step": _WORD,
                **dict.fromkeys(("layouts", "impossible", "too_large", "slower", "layers_simulated"), _COUNT),
                "framework": _OR_NULL,
                "recommended": _OBJECT_OR_NULL,
                "outcomes": _OBJECTS,
                "declared": _OBJECTS,
                "interrupted": _FLAG,
                "marks": _WORDS,
            }
        ),
        "Error": _error(),
    }
    health = {"operationId": "health", "responses": {"200": {"description": "the service answers"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Magus", "version": __version__},
        "paths": {
            PATH: {"post": recommend},
            LAYER_PATH: {"post": recommend_layer},
            ASK_PATH: {"post": ask},
            "/health": {"get": health},
        },
        "components": {"schemas": schemas},
    }


def _post(operation: str, summary: str, question: str, *answers: str) -> JsonObject:
    """Return an operation that takes a question in JSON and gives one of some answers, or an error."""
    each = [{"$ref": _ref(name)} for name in answers]
    answer = {"description": "the answer", **_json(each[0] if len(each) == 1 else {"oneOf": each})}
    failed = {code: {"description": text, **_json({"$ref": _ref("Error")})} for code, text in _ERRORS.items()}
    return {
        "operationId": operation,
        "summary": summary,
        "requestBody": {"required": True, **_json({"$ref": _ref(question)})},
        "responses": {"200": answer, **failed},
    }


def _json(schema: JsonObject) -> JsonObject:
    return {"content": {"application/json": {"schema": schema}}}


def _ref(name: str) -> str:
    return f"#/components/schemas/{name}"


def _question() -> JsonObject:
    properties = {
        "pattern": one_of([pattern.value for pattern in PATTERNS]),
        "m": _about(_COUNT, "rows of the GEMM of one rank, [m, k] x [k, n]"),
        "n": _COUNT,
        "k": _COUNT,
        "num_bytes": _about(whole_number(0, MAX_BYTES), "the whole tensor of a collective without a GEMM"),
        "dtype": one_of([dtype.value for dtype in DType]),
        "gpu": _GPU,
        "ranks": _RANKS,
        "topology": one_of(("", *TOPOLOGIES)),
        "schedules": list_of(_WORD, 64),
        **_OF_BOTH,
        "simulate": _about(_FLAG, "false answers at once, from the model; default true"),
        "within_s": _WITHIN,
        "bespoke": whole_number(0, MOST_BESPOKE),
        "plan": _about(_FLAG, "also the plan, magus-plan/2"),
        "advice": _about(_FLAG, "also all of the advice, magus-advice/1"),
    }
    return object_of(properties, ("pattern", "gpu", "ranks"))


def _ask_question() -> JsonObject:
    sizes = ("tp", "dp", "ep", "prefill", "decode", "keys", "sequences", "seq_len", "micro_batch")
    properties: JsonObject = {
        "model": _about({"type": ["string", "object"]}, "a model that ships, or what is in a config.json"),
        "gpu": _WORD,
        "for": _about(_WORD, "a framework, or one of its versions: vllm@0.11"),
        "train": _FLAG,
        **dict.fromkeys(sizes, whole_number(1, MOST_COUNT)),
        "gpus": _about(whole_number(1, MOST_GPUS), "which layout of so many GPUs serves best"),
    }
    return object_of(properties, ("model", "gpu", "for"))


def _ask_answer() -> JsonObject:
    words = ("schema", "model", "gpu", "framework", "version", "today", "confidence", "confidence_reason")
    return _whole_object(
        {
            **dict.fromkeys(words, _WORD),
            "version_doubt": _about(_OR_NULL, "what to know where another version is asked about"),
            "tokens": _COUNT,
            **dict.fromkeys(("today_us", "graph_us"), _NUMBER),
            "switch_on": _OBJECT_OR_NULL,
            "file": _about(_OR_NULL, "the text that switches it on, as the framework reads it"),
            "no_file": _about(_OR_NULL, "why there is none"),
            "switches": list_of(_OBJECT, 64),
            "unknown": list_of(_WORD, 64),
            "kernel": _OBJECT_OR_NULL,
            "simulated_gain": _NUMBER,
            "most_gain": _NUMBER_OR_NULL,
            "interrupted": _FLAG,
        }
    )


def _layouts_answer() -> JsonObject:
    counts = ("gpus", "tokens", "layouts", "impossible", "too_large", "limit_bytes")
    return _whole_object(
        {
            **dict.fromkeys(("schema", "model", "gpu", "framework", "version", "reason"), _WORD),
            **dict.fromkeys(counts, _COUNT),
            **dict.fromkeys(("sequences", "keys"), _WHOLE_OR_NULL),
            "outcomes": list_of(_OBJECT, 1024),
            "answer": {"$ref": _ref("AskAnswer")},
            "interrupted": _FLAG,
        }
    )


_ANSWER: Mapping[str, tuple[JsonObject, Callable[[Advice], object]]] = {
    "schema": (_WORD, lambda _: SCHEMA),
    "magus": (_WORD, lambda _: __version__),
    "verdict": (_VERDICT, lambda advice: advice.verdict.value),
    "schedule": (_WORD, lambda advice: advice.recommended.expression),
    "template": (_OR_NULL, lambda advice: advice.recommended.choice and advice.recommended.choice.template),
    "chunks": (_WHOLE_OR_NULL, lambda advice: advice.recommended.choice and advice.recommended.choice.chunks),
    "copy_engines": (_WHOLE, lambda advice: advice.recommended.schedule.engine.copy_engines),
    "copy_sms": (_WHOLE, lambda advice: advice.recommended.schedule.engine.copy_sms),
    "us": (_NUMBER, lambda advice: advice.recommended.best_us),
    "baseline": (_WORD, lambda advice: advice.serial.expression),
    "baseline_us": (_NUMBER, lambda advice: advice.serial.best_us),
    "gain": (_NUMBER, lambda advice: advice.gain),
    "gain_interval": (_INTERVAL | {"minItems": 2, "maxItems": 2}, lambda advice: advice.interval),
    "source": (one_of(("cache", "model", "simulation")), lambda advice: advice.source.value),
    "interrupted": (_FLAG, lambda advice: advice.interrupted),
    "confidence": (_CONFIDENCE, lambda advice: advice.confidence.value),
    "confidence_reason": (_WORD, lambda advice: advice.confidence_reason),
    "reasons": (_WORDS, lambda advice: list(advice.reasons)),
    "marks": (_WORDS, lambda advice: list(advice.marks)),
}
"""The members of an answer in short, each with its schema, and its value."""


def answer_document(advice: Advice, *, with_plan: bool, with_advice: bool) -> JsonObject:
    """Return the answer in short, with the plan and the whole advice if they were asked for."""
    document: JsonObject = {key: value(advice) for key, (_, value) in _ANSWER.items()}
    if with_plan:
        document["plan"] = advice.plan()
    if with_advice:
        document["advice"] = advice_document(advice)
    return document


def _answer() -> JsonObject:
    always = {key: schema for key, (schema, _) in _ANSWER.items()}
    return object_of(always | {"plan": _OBJECT_OR_NULL, "advice": {"$ref": _ref("Advice")}}, tuple(always))


def _error() -> JsonObject:
    inner = object_of(dict.fromkeys(("code", "field", "message", "hint"), _WORD), ("code", "message"))
    return _whole_object({"error": inner})
