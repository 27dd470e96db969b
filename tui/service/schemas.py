"""Schemas of questions about whole layers, and of advice, ``magus-advice/1``."""

from ...advisor.answer.export import ADVICE_SCHEMA
from ...advisor.candidates.advice import Confidence
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


def _op() -> JsonObject:
    us = {"type": ["number", "null"]}
    times = dict.fromkeys(("begin_us", "end_us", "comm_us", "exposed_us", "alone_us", "whole_us"), us)
    hidden = {"type": "array", "items": {"type": "object"}}
    properties = {"name": _WORD, "pattern": _WORD, "how": _OR_NULL, "alone": _OR_NULL, "hidden_by": hidden, **times}
    return object_of(properties, tuple(properties))
