"""Answers and errors of the service as JSON, ``magus-answer/1``."""

from ... import __version__
from ...advisor import Advice, RequestError
from ...advisor.answer.export import advice_document
from ...compiler.ir import JsonObject
from .questions import Question

SCHEMA = "magus-answer/1"


def answer_document(question: Question, advice: Advice) -> JsonObject:
    """Return the answer in short, with the plan and the whole advice if they were asked for."""
    choice, engine = advice.recommended.choice, advice.recommended.schedule.engine
    document: JsonObject = {
        "schema": SCHEMA,
        "magus": __version__,
        "verdict": advice.verdict.value,
        "schedule": advice.recommended.expression,
        "template": None if choice is None else choice.template,
        "chunks": None if choice is None else choice.chunks,
        "copy_engines": engine.copy_engines,
        "copy_sms": engine.copy_sms,
        "us": advice.recommended.best_us,
        "baseline": advice.serial.expression,
        "baseline_us": advice.serial.best_us,
        "gain": advice.speedup,
        "gain_interval": advice.interval,
        "source": advice.source.value,
        "interrupted": advice.interrupted,
        "confidence": advice.confidence.value,
        "confidence_reason": advice.confidence_reason,
        "reasons": list(advice.reasons),
        "marks": list(advice.marks),
    }
    if question.with_plan:
        document["plan"] = advice.plan()
    if question.with_advice:
        document["advice"] = advice_document(advice)
    return document


def error_document(code: str, message: str, field: str = "", hint: str = "") -> JsonObject:
    """Return what is wrong: a permanent code, the field of the request, what to do instead."""
    return {"error": {"code": code, "field": field, "message": message, "hint": hint}}


def request_error_document(error: RequestError) -> JsonObject:
    """Return a ``RequestError`` as JSON."""
    return error_document(error.code.name, error.message, error.field, error.hint)
