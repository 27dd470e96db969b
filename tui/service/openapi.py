"""The OpenAPI document of the service, made of the same lists that its checks are made of."""

from ... import __version__
from ...advisor.answer.export import ADVICE_SCHEMA
from ...advisor.candidates.advice import Confidence
from ...advisor.questions.layouts import MOST_GPUS
from ...advisor.questions.question import MOST_COUNT
from ...compiler.ir import DType, JsonObject
from ...compiler.request.request import MAX_BYTES, PATTERNS, TOPOLOGIES
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.text.json_forms import list_of, object_of, one_of, whole_number
from ...compiler.text.vocabulary import MAX_EXTENT
from .questions import MOST_BESPOKE, MOST_RANKS

_WORD, _NUMBER, _COUNT = {"type": "string"}, {"type": "number"}, whole_number(0, MAX_EXTENT)
_OR_NULL = {"type": ["string", "null"]}


def layer_question_schema() -> JsonObject:
    """Return the schema of a question: a model with gpu, tp and tokens, or a text."""
    properties = {
        "model": {"type": "object", "description": "the content of a config.json of transformers"},
        "name": {**_WORD, "description": "of the model, where its configuration has none"},
        "gpu": {**_WORD, "description": "a GPU that ships, or the name that its driver gives it"},
        "tp": whole_number(2, MOST_RANKS),
        "tokens": {**whole_number(1, MAX_EXTENT), "description": "rows that all ranks hold together"},
        "backward": {"type": "boolean", "description": "the backward pass with weight gradients; default false"},
        "sequence_parallel": {"type": "boolean", "description": "default true"},
        "decode": {**whole_number(1, MAX_EXTENT), "description": "keys of each sequence in a step of decode"},
        "node": {**whole_number(1, MOST_RANKS), "description": "GPUs of one node; default 8"},
        "engines": list_of(_WORD, 64),
        "staging_bytes": {"type": ["integer", "null"], "minimum": 0},
        "implementations": list_of(_WORD, 64),
        "text": {**_WORD, "description": "instead of a model: a .mgs file without other files"},
        "workload": {**_OR_NULL, "description": "of the text; default: the first"},
        "settings": {"type": "object", "description": "of the text: values of its parameters by name"},
        "simulate": {
            "type": "boolean",
            "description": "false tries no small changes; default true",
        },
        "within_s": {"type": "number", "minimum": 0, "description": "the best found by then"},
        "bespoke": whole_number(0, MOST_BESPOKE),
    }
    return object_of(properties, ()) | {
        "oneOf": [{"required": ["model", "gpu", "tp", "tokens"]}, {"required": ["text"]}]
    }


def advice_schema() -> JsonObject:
    """Return the schema of all of the advice, the document of ``magus advise --json``."""
    of_all = _of_all()
    of_several = {
        "layers": _COUNT,
        "block": {**_OR_NULL, "description": "the recommended schedule for the file"},
        "ops": {"type": "array", "items": _op()},
        "kernels_us": _NUMBER,
        "copier": _WORD,
        "searched": _COUNT,
        "imbalance": {"type": ["object", "null"]},
    }
    return object_of(of_all | of_several, tuple(of_all))


def _of_all() -> JsonObject:
    """What every answer has."""
    number, words, anything = (
        {"type": ["number", "null"]},
        {"type": "array", "items": _WORD},
        {"type": ["object", "null"]},
    )
    candidates = {"type": "array", "items": {"type": "object"}}
    return {
        "schema": {"const": ADVICE_SCHEMA},
        "scenario": _WORD,
        "workload": _WORD,
        "pattern": _OR_NULL,
        "recommended": _WORD,
        "verdict": one_of([each.value for each in Verdict]),
        "headline": _OR_NULL,
        "speedup_vs_serial": _NUMBER,
        "promised": number,
        "in_graph": number,
        "on_host": number,
        "error": number,
        "interval": {"type": ["array", "null"], "items": _NUMBER},
        "outside": _OR_NULL,
        "serial": _WORD,
        "baseline": {"type": "object"},
        "library": anything,
        "implementations": anything,
        "lower_bound_us": number,
        "bound": anything,
        "gap_to_bound": number,
        "confidence": one_of([each.value for each in Confidence]),
        "confidence_reason": _WORD,
        "sensitivity": anything,
        "threshold": anything,
        "routing_draws": anything,
        "reasons": words,
        "how": anything,
        "ties": words,
        "given_up": anything,
        "marks": words,
        "outside_calibration": words,
        "interrupted": {"type": "boolean"},
        "notes": words,
        "num_feasible": {"type": ["integer", "null"]},
        "candidates": candidates,
        "result": anything,
        "serial_result": anything,
        "timing": {"type": "object"},
    }


def step_schema() -> JsonObject:
    """Return the schema of the answer about a training step."""
    outcomes = {"type": "array", "items": {"type": "object"}}
    counts = dict.fromkeys(("layouts", "impossible", "too_large", "slower", "layers_simulated"), _COUNT)
    properties = {
        "step": _WORD,
        **counts,
        "framework": _OR_NULL,
        "recommended": {"type": ["object", "null"]},
        "outcomes": outcomes,
        "declared": outcomes,
        "interrupted": {"type": "boolean"},
        "marks": {"type": "array", "items": _WORD},
    }
    return object_of(properties, tuple(properties))


def _op() -> JsonObject:
    us = {"type": ["number", "null"]}
    times = dict.fromkeys(("begin_us", "end_us", "comm_us", "exposed_us", "alone_us", "whole_us"), us)
    hidden = {"type": "array", "items": {"type": "object"}}
    properties = {"name": _WORD, "pattern": _WORD, "how": _OR_NULL, "alone": _OR_NULL, "hidden_by": hidden, **times}
    return object_of(properties, tuple(properties))


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
        "LayerQuestion": layer_question_schema(),
        "Advice": advice_schema(),
        "StepAdvice": step_schema(),
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
    size, word = whole_number(0, MAX_EXTENT), {"type": "string"}
    properties = {
        "pattern": one_of([pattern.value for pattern in PATTERNS]),
        "m": {**size, "description": "rows of the GEMM of one rank, [m, k] x [k, n]"},
        "n": size,
        "k": size,
        "num_bytes": {**whole_number(0, MAX_BYTES), "description": "the whole tensor of a collective without a GEMM"},
        "dtype": one_of([dtype.value for dtype in DType]),
        "gpu": {**word, "description": "a GPU that ships, or the name that its driver gives it"},
        "ranks": whole_number(1, MOST_RANKS),
        "topology": one_of(("", *TOPOLOGIES)),
        "schedules": list_of(word, 64),
        "engines": list_of(word, 64),
        "staging_bytes": {"type": ["integer", "null"], "minimum": 0},
        "implementations": list_of(word, 64),
        "simulate": {"type": "boolean", "description": "false answers at once, from the model; default true"},
        "within_s": {"type": "number", "minimum": 0, "description": "the best found by then"},
        "bespoke": whole_number(0, MOST_BESPOKE),
        "plan": {"type": "boolean", "description": "also the plan, magus-plan/2"},
        "advice": {"type": "boolean", "description": "also all of the advice, magus-advice/1"},
    }
    return object_of(properties, ("pattern", "gpu", "ranks"))


def _ask_question() -> JsonObject:
    count = whole_number(1, MOST_COUNT)
    sizes = ("tp", "dp", "ep", "prefill", "decode", "keys", "sequences", "seq_len", "micro_batch")
    counts = dict.fromkeys(sizes, count)
    model = {"type": ["string", "object"], "description": "a model that ships, or what is in a config.json"}
    gpus = {"gpus": {**whole_number(1, MOST_GPUS), "description": "which layout of so many GPUs serves best"}}
    properties: JsonObject = {
        "model": model,
        "gpu": _WORD,
        "for": _WORD,
        "train": {"type": "boolean"},
        **counts,
        **gpus,
    }
    return object_of(properties, ("model", "gpu", "for"))


def _ask_answer() -> JsonObject:
    words = ("schema", "model", "gpu", "framework", "version", "today", "confidence", "confidence_reason")
    gain = {"type": ["object", "null"]}
    properties: JsonObject = {
        **dict.fromkeys(words, _WORD),
        "tokens": _COUNT,
        **dict.fromkeys(("today_us", "graph_us"), _NUMBER),
        "switch_on": gain,
        "file": {**_OR_NULL, "description": "the text that switches it on, as the framework reads it"},
        "no_file": {**_OR_NULL, "description": "why there is none"},
        "switches": list_of({"type": "object"}, 64),
        "unknown": list_of(_WORD, 64),
        "kernel": gain,
        "simulated_gain": _NUMBER,
        "most_gain": {"type": ["number", "null"]},
        "interrupted": {"type": "boolean"},
    }
    return object_of(properties, tuple(properties))


def _layouts_answer() -> JsonObject:
    words = ("schema", "model", "gpu", "framework", "version", "reason")
    counts = ("gpus", "tokens", "layouts", "impossible", "too_large", "limit_bytes")
    properties: JsonObject = {
        **dict.fromkeys(words, _WORD),
        **dict.fromkeys(counts, _COUNT),
        "sequences": {"type": ["integer", "null"]},
        "keys": {"type": ["integer", "null"]},
        "outcomes": list_of({"type": "object"}, 1024),
        "answer": {"$ref": _ref("AskAnswer")},
        "interrupted": {"type": "boolean"},
    }
    return object_of(properties, tuple(properties))


def _answer() -> JsonObject:
    number, word, words = {"type": "number"}, {"type": "string"}, {"type": "array", "items": {"type": "string"}}
    gains = {"type": ["array", "null"], "items": number, "minItems": 2, "maxItems": 2}
    properties = {
        "schema": word,
        "magus": word,
        "verdict": one_of([verdict.value for verdict in Verdict]),
        "schedule": word,
        "template": {"type": ["string", "null"]},
        "chunks": {"type": ["integer", "null"]},
        "copy_engines": {"type": "integer"},
        "copy_sms": {"type": "integer"},
        "us": number,
        "baseline": word,
        "baseline_us": number,
        "gain": number,
        "gain_interval": gains,
        "source": one_of(("cache", "model", "simulation")),
        "interrupted": {"type": "boolean"},
        "confidence": one_of(("high", "medium", "low")),
        "confidence_reason": word,
        "reasons": words,
        "marks": words,
        "plan": {"type": ["object", "null"]},
        "advice": {"$ref": _ref("Advice")},
    }
    return object_of(properties, [key for key in properties if key not in ("plan", "advice")])


def _error() -> JsonObject:
    word = {"type": "string"}
    inner = object_of({"code": word, "field": word, "message": word, "hint": word}, ("code", "message"))
    return object_of({"error": inner}, ("error",))
