"""The OpenAPI document of the service, made of the same lists that its checks are made of."""

from ... import __version__
from ...compiler.ir import DType, JsonObject
from ...compiler.request.request import MAX_BYTES, PATTERNS, TOPOLOGIES
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.text.schema_parts import list_of, object_of, one_of, whole_number
from ...compiler.text.vocabulary import MAX_EXTENT
from .questions import MOST_BESPOKE, MOST_RANKS
from .schemas import advice_schema, layer_question_schema

PATH, LAYER_PATH = "/v1/recommend", "/v1/recommend_layer"
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
    answer = {"description": "the answer", "content": {"application/json": {"schema": {"$ref": _ref("Answer")}}}}
    failed = {
        code: {"description": text, "content": {"application/json": {"schema": {"$ref": _ref("Error")}}}}
        for code, text in _ERRORS.items()
    }
    body = {"required": True, "content": {"application/json": {"schema": {"$ref": _ref("Question")}}}}
    recommend = {
        "operationId": "recommend",
        "summary": "Which schedule to use",
        "requestBody": body,
        "responses": {"200": answer, **failed},
    }
    layer_answer = {**answer, "content": {"application/json": {"schema": {"$ref": _ref("Advice")}}}}
    recommend_layer = {
        "operationId": "recommendLayer",
        "summary": "Which schedule to use for all ops of a layer together",
        "requestBody": {**body, "content": {"application/json": {"schema": {"$ref": _ref("LayerQuestion")}}}},
        "responses": {"200": layer_answer, **failed},
    }
    schemas = {
        "Question": _question(),
        "Answer": _answer(),
        "LayerQuestion": layer_question_schema(),
        "Advice": advice_schema(),
        "Error": _error(),
    }
    health = {"operationId": "health", "responses": {"200": {"description": "the service answers"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Magus", "version": __version__},
        "paths": {PATH: {"post": recommend}, LAYER_PATH: {"post": recommend_layer}, "/health": {"get": health}},
        "components": {"schemas": schemas},
    }


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
