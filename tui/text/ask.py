"""The answer to one question about a model, in a dozen lines."""

from collections.abc import Iterator

from ...advisor.answer.switches import Switched
from ...advisor.implementations.predict import Promise
from ...advisor.questions.ask import ModelAnswer
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.text.units import us_text
from .door import bullet, hanging, wrapped


def ask_text(answer: ModelAnswer) -> str:
    """Return the answer as text: today, what to switch on, what a kernel could add, how sure."""
    return "\n".join(_lines(answer)) + "\n"


def _lines(answer: ModelAnswer) -> Iterator[str]:
    yield from wrapped(_asked(answer))
    framework = f"{answer.framework.title} {answer.framework.version}"
    yield from wrapped(f"{framework} today: {answer.today}. {us_text(answer.today_us)} for {_layers(answer)}.")
    yield ""
    yield from _switches(answer)
    yield from _kernel(answer)
    if answer.interrupted:
        yield "Stopped early: this is the best of what was found until then."
    advice = answer.advice[0]
    yield from hanging(f"{advice.confidence.value}: {advice.confidence_reason}.", 10, "How sure: ")


def _asked(answer: ModelAnswer) -> str:
    question, model = answer.question, answer.question.model
    experts = f", {model.experts} experts" if model.experts else ""
    sharing = {"TP": question.tp, "DP": question.dp, "EP": question.ep}
    shared = " ".join(f"{word}{number}" for word, number in sharing.items() if number > 1)
    if question.train:
        batches = "a micro-batch" if question.dp == 1 else f"{question.dp} micro-batches"
        what = f"training, {question.tokens} tokens of {batches}"
    elif question.keys is not None:
        what = f"decode of {question.tokens} sequences of {question.keys} keys"
    else:
        what = f"prefill of {question.tokens} tokens"
    gpus = f"{question.tp * question.dp} x {answer.advice[0].scenario.gpu.name}"
    return f"{model.name} ({model.layers} layers{experts}) on {gpus}, {shared}: {what}"


def _layers(answer: ModelAnswer) -> str:
    question = answer.question
    return (
        "all layers"
        if question.layers == question.model.layers
        else f"{question.layers} of {question.model.layers} layers"
    )


def _switches(answer: ModelAnswer) -> Iterator[str]:
    first, others = answer.first, answer.switches
    if first is None:
        yield from wrapped(f"Switch on: nothing. {_why_nothing(answer)}")
    else:
        yield from hanging(f"{_gain(first)} over today{_from(first)}.", 11, f"Switch on: {first.switch.what}, ")
        yield from bullet(" ", f"costs: {first.switch.costs}")
        yield f"    {first.setting}"  # to copy: it is not wrapped
        others = others[1:]
    for each in others:
        yield from bullet("-" if not each.pays else "+", f"{each.switch.what}: {_gain(each)}")
    for what in answer.unknown:
        yield from bullet("!", f"{what}: not known here")


def _why_nothing(answer: ModelAnswer) -> str:
    if answer.switches:
        gains = any(each.promise.verdict is Verdict.WORTH_TRYING for each in answer.switches)
        return f"What it can switch on gains {'no more than its error' if gains else 'nothing'} here:"
    if answer.unknown:
        return "Of what it can switch on nothing is known here:"
    elsewhere = " and ".join(each.what for each in answer.question.not_here)
    if elsewhere:
        return f"Not for {answer.advice[0].scenario.gpu.name}: {elsewhere}."
    return f"{answer.framework.title} has nothing that overlaps such a layer."


def _gain(each: Switched) -> str:
    trying = ", worth trying" if each.promise.verdict is Verdict.WORTH_TRYING else ""
    return _promise(each.promise) + trying


def _promise(promise: Promise) -> str:
    interval = promise.interval
    ends = "" if interval is None else f" ({interval[0]:.2f}x to {interval[1]:.2f}x)"
    return f"{promise.speedup:.2f}x{ends}"


def _from(each: Switched) -> str:
    return "" if each.pays_from is None else f", from {each.pays_from} tokens on"


def _kernel(answer: ModelAnswer) -> Iterator[str]:
    kernel, limit = answer.kernel, answer.limit
    promised = "" if kernel is None else f"; with what kernels cost {_promise(kernel)}"
    most = "" if limit is None else f"; no schedule more than {limit:.2f}x"
    yield from hanging(f"{answer.simulated:.2f}x over today as simulated{promised}{most}.", 21, "A kernel could gain: ")
