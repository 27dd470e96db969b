"""The answer to one question about a model, in a dozen lines."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...advisor import RequestError
from ...advisor.answer.switches import Switched
from ...advisor.implementations.predict import MIN_GAIN, Promise
from ...advisor.questions.ask import LayoutAnswer, ModelAnswer
from ...advisor.questions.layouts import LayoutOutcome, LayoutQuestion
from ...advisor.steps.search import TIE
from ...compiler.ir import JsonObject
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.text.units import bytes_text, us_text
from .door import bullet, hanging, wrapped
from .render import interval_text
from .step import aligned


def ask_text(answer: ModelAnswer) -> str:
    """Return the answer as text: today, what to switch on, what a kernel could add, how sure."""
    return "\n".join(_lines(answer)) + "\n"


def _lines(answer: ModelAnswer) -> Iterator[str]:
    yield from wrapped(_question_line(answer))
    framework = f"{answer.framework.title} {answer.framework.version}"
    graph = "" if answer.graph_us == answer.today_us else f" ({us_text(answer.graph_us)} in a CUDA graph)"
    yield from wrapped(f"{framework} today: {answer.today}. {us_text(answer.today_us)}{graph} for {_layers(answer)}.")
    yield from _marked(answer.doubt)
    yield ""
    yield from _switches(answer)
    yield from _kernel(answer)
    if answer.interrupted:
        yield "Stopped early: this is the best of what was found until then."
    advice = answer.advice[0]
    yield from hanging(f"{advice.confidence.value}: {advice.confidence_reason}.", 10, "How sure: ")


def _marked(*doubts: str) -> Iterator[str]:
    for doubt in filter(None, dict.fromkeys(doubts)):
        yield from bullet("!", doubt)


def _question_line(answer: ModelAnswer) -> str:
    question, model = answer.question, answer.question.model
    experts = f", {model.experts} experts" if model.experts else ""
    sharing = {"TP": question.tp, "DP": question.dp, "EP": question.ep}
    shared = " ".join(f"{word}{number}" for word, number in sharing.items() if number > 1)
    if question.train:
        batches = "" if question.dp == 1 else f" of {question.dp} micro-batches"
        what = f"training, {question.tokens} tokens{batches}"
    elif question.keys is not None:
        what = f"decode of {question.tokens} sequences of {question.keys} keys"
    else:
        what = f"prefill of {question.tokens} tokens"
    gpus = f"{question.tp * question.dp} x {answer.advice[0].scenario.gpu.name}"
    return f"{model.name} ({model.layers} layers{experts}) on {gpus}, {shared}: {what}"


def _layers(answer: ModelAnswer) -> str:
    question = answer.question
    if question.layers < question.model.layers:
        return f"{question.layers} of {question.model.layers} layers"
    return f"the {question.model.expert_layers} layers with experts" if question.others else "all layers"


def layouts_text(answer: LayoutAnswer, *, full: bool = False) -> str:
    """Return which layout to serve with as text: the fastest ones, what is exposed, flags, what to switch on.

    ``full``: all layouts, and the whole answer about one server of the fastest.
    """
    rest = ["", *_lines(answer.answer)] if full else []
    return "\n".join([*_layouts(answer, None if full else SHOWN), *rest]) + "\n"


SHOWN = 4
"""Layouts that an answer shows."""


def _layouts(answer: LayoutAnswer, shown: int | None) -> Iterator[str]:
    question, compared, facts = answer.question, answer.compared, answer.answer.framework
    experts = f", {question.model.experts} experts" if question.model.experts else ""
    model = f"{question.model.name} ({question.model.layers} layers{experts})"
    gpus = f"{question.gpus} x {answer.answer.advice[0].scenario.gpu.name}"
    fit = "does" if compared.too_large == 1 else "do"
    left = f"{compared.num_layouts} layouts: {compared.impossible} cannot be, {compared.too_large} {fit} not fit"
    yield from wrapped(f"{model} on {gpus}, {facts.title} {facts.version}: {_step_of(question)}; {left}.")
    yield from _marked(answer.answer.doubt)
    rows: list[tuple[str, ...]] = [("", "layout", "a layer", "model", "", "tok/s/GPU", "memory", "exposed")]
    best = compared.outcomes[0]
    rows += [_row(each, best) for each in compared.outcomes[:shown]]
    yield from aligned(rows, 2)
    yield from hanging(_exposed(answer, best), 9, "Exposed: ")
    memory = best.memory
    parts = f"weights {bytes_text(memory.weights)}, keys and values {bytes_text(memory.cache)}"
    yield from hanging(f"{bytes_text(memory.total)} of {bytes_text(compared.limit)}: {parts}.", 8, "Memory: ")
    each = "" if best.layout.servers == 1 else f"{best.layout.servers} servers, each "
    yield f"{facts.title}: {each}{best.layout.flags(facts)}"
    first = answer.answer.first
    if first is None:
        yield from wrapped(f"Switch on: nothing. {_why_nothing(answer.answer)}".rstrip(":"))
    else:
        yield from hanging(f"{_gain(first)} over today{_from(first)}.", 11, f"Switch on: {first.switch.what}, ")
        yield f"    {first.setting}"
    if answer.interrupted:
        yield "Stopped early: this is the best of what was found until then."


def _step_of(question: LayoutQuestion) -> str:
    """The tokens of a step, which are the same in all layouts."""
    if question.keys is not None:
        return f"decode of {question.tokens} sequences of {question.keys} keys in all layouts"
    count = question.sequences or 1
    return f"{question.tokens} tokens of {count} sequence{'s' if count > 1 else ''} in all layouts"


def _row(each: LayoutOutcome, best: LayoutOutcome) -> tuple[str, ...]:
    """A layout in figures: ``=`` ties with the fastest one."""
    change = each.model_us / best.model_us - 1
    mark, more = (">", "") if each is best else ("=" if change <= TIE else "", f"{change:+.1%}")
    times = us_text(each.layer_us), f"{each.model_us / 1e3:,.2f} ms", more
    exposed = "-" if each.exposed_us is None else f"{each.exposed_us / each.model_us:.0%}"
    memory = f"{each.memory.total / 2**30:.1f} GiB"
    return mark, each.layout.words, *times, f"{each.tokens_per_gpu_s:,.0f}", memory, exposed


def _exposed(answer: LayoutAnswer, best: LayoutOutcome) -> str:
    """What nothing hides in the fastest layout, and why."""
    if best.exposed_us is None:
        return "not known."
    took = f"{best.exposed_us / 1e3:,.2f} ms of {best.model_us / 1e3:,.2f} ms"
    return f"{took}: {answer.answer.today}; nothing runs beside it."


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
        yield from bullet("-" if not each.pays else "+", f"{each.switch.what}: {_gain(each)}{_by_call(each)}")
    for what in answer.unknown:
        yield from bullet("!", f"{what}: not known here")


def _why_nothing(answer: ModelAnswer) -> str:
    if answer.switches:
        if any(each.promise.verdict is Verdict.WORTH_TRYING for each in answer.switches):
            return "What it can switch on gains no more than its error here:"
        called = any(_by_call(each) for each in answer.switches)
        return f"What it can switch on {'does not gain by every call' if called else 'gains nothing here'}:"
    if answer.unknown:
        return "Of what it can switch on nothing is known here:"
    elsewhere = " and ".join(each.what for each in answer.question.not_here)
    if elsewhere:
        return f"Not for {answer.advice[0].scenario.gpu.name}: {elsewhere}."
    return f"{answer.framework.title} has nothing that overlaps such a layer."


def _by_call(each: Switched) -> str:
    """Its gain by the calls by which it does not pay, if by others it does; else empty."""
    promise, (least, _) = each.promise, each.promise.by_call
    if not least <= 1 + MIN_GAIN < promise.speedup:
        return ""
    return f", {least:.2f}x {'in a CUDA graph' if least == promise.in_graph else 'where the GPU waits for calls'}"


def _speedup(promise: Promise) -> str:
    return f"{promise.speedup:.2f}x{interval_text(promise)}"


def _gain(each: Switched) -> str:
    trying = ", worth trying" if each.promise.verdict is Verdict.WORTH_TRYING else ""
    return _speedup(each.promise) + trying


def _from(each: Switched) -> str:
    return "" if each.pays_from is None else f", from {each.pays_from} tokens on"


def _kernel(answer: ModelAnswer) -> Iterator[str]:
    kernel, limit, simulated = answer.kernel, answer.limit, f"{answer.simulated:.2f}x"
    gain = f"{simulated} as simulated" if kernel is None else f"{_speedup(kernel)}; as simulated {simulated}"
    most = "" if limit is None else f"; bound {limit:.2f}x"
    loses = round(answer.simulated if kernel is None else kernel.speedup, 2) < 1
    lead = "A kernel would lose: " if loses else "A kernel could gain: "
    yield from hanging(f"{gain}{most}.", len(lead), lead)


@dataclass(frozen=True, slots=True)
class AskedModels:
    """What is known of each model by its name: the document of its answer, None without one, or why it is refused."""

    answers: Mapping[str, JsonObject | None]
    refused: Mapping[str, RequestError]

    @property
    def unanswered(self) -> tuple[str, ...]:
        """The models that nobody answered."""
        return tuple(name for name, found in self.answers.items() if found is None)

    def document(self) -> JsonObject:
        """As JSON of the schema ``magus-ask-many/1``."""
        return {
            "schema": "magus-ask-many/1",
            "answers": [found for found in self.answers.values() if found is not None],
            "refused": [
                {"model": name, "code": error.code.name, "reason": error.message, "hint": error.hint}
                for name, error in self.refused.items()
            ],
            "unanswered": list(self.unanswered),
        }


def many_text(models: AskedModels) -> str:
    """Return a line for each model: its time today, the gain of what to switch on first, and what that is."""
    found = {name: each for name, each in models.answers.items() if each is not None}
    rows: list[tuple[str, ...]] = [("model", "today", "gain", "  switch on")]
    for name, each in found.items():
        first = each["switch_on"]
        gain, what = ("", "  nothing") if first is None else (f"{first['gain']:.2f}x", f"  {first['switch']}")
        rows.append((name, f"{each['today_us'] / 1e3:,.2f} ms", gain, what + _from_tokens(first)))
    lines = list(aligned([(*row[:3], f"{row[3]:<60}") for row in rows], 1)) if found else []  # words to the left
    lines += _marked(*(each["version_doubt"] or "" for each in found.values()))
    for name, error in models.refused.items():
        lines += bullet("!", f"{name}: {error.message}; {error.hint}")
    if models.unanswered:
        lines += bullet("!", f"not answered: {', '.join(models.unanswered)}")
    return "\n".join(lines) + "\n"


def _from_tokens(first: JsonObject | None) -> str:
    least = None if first is None else first["from_tokens"]
    return "" if least is None else f", from {least} tokens on"
