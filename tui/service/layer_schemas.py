"""Schemas of questions about whole layers and of their answers, ``magus-graph-advice/2``."""

from ...advisor.candidates.advice import Confidence
from ...advisor.layers.export import SCHEMA
from ...compiler.ir import JsonObject
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.text.schema_parts import list_of, object_of, one_of, whole_number
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


def layer_answer_schema() -> JsonObject:
    """Return the schema of an answer, the document of ``magus advise --json`` on a graph."""
    candidate, words = {"type": "object"}, {"type": "array", "items": _WORD}
    properties = {
        "schema": {"const": SCHEMA},
        "scenario": _WORD,
        "workload": _WORD,
        "verdict": one_of([each.value for each in Verdict]),
        "layers": _COUNT,
        "speedup": _NUMBER,
        "error": {"type": ["number", "null"]},
        "interval": {"type": ["array", "null"], "items": _NUMBER},
        "outside": _OR_NULL,
        "baseline": {"type": "object"},
        "confidence": one_of([each.value for each in Confidence]),
        "confidence_reason": _WORD,
        "ties": words,
        "recommended": candidate,
        "serial": candidate,
        "candidates": {"type": "array", "items": candidate},
        "ops": {"type": "array", "items": _op()},
        "reasons": words,
        "bound": {"type": ["object", "null"]},
        "gap_to_bound": {"type": ["number", "null"]},
        "kernels_us": _NUMBER,
        "copier": _WORD,
        "searched": _COUNT,
        "timing": {"type": "object"},
        "marks": words,
        "interrupted": {"type": "boolean"},
        "outside_calibration": words,
        "implementations": {"type": ["object", "null"]},
    }
    return object_of(properties, tuple(properties))


def _op() -> JsonObject:
    us = {"type": ["number", "null"]}
    times = dict.fromkeys(("begin_us", "end_us", "comm_us", "exposed_us", "alone_us", "whole_us"), us)
    hidden = {"type": "array", "items": {"type": "object"}}
    properties = {"name": _WORD, "pattern": _WORD, "how": _OR_NULL, "alone": _OR_NULL, "hidden_by": hidden, **times}
    return object_of(properties, tuple(properties))
