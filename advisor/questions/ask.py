"""The answer to one question about a model on a framework: what to switch on first, what it gains over what runs today.

The baseline is what the framework does today: the library's collectives, its own small all_reduce where that is faster,
or an order that it has by default. What it can switch on is compared with that, and nothing else is recommended; what a
kernel of one's own could add is told apart.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, overload

from ... import __version__
from ...compiler.codes import Code
from ...compiler.from_model.frameworks import Framework, FrameworkSwitch, version_doubt
from ...compiler.ir import TICKS_PER_US, Cancelled, ShouldStop
from ...compiler.ir.stopping import never
from ...compiler.planning.build import ScheduleError
from ...compiler.request.request import RequestError
from ..answer.stages import AdviceOptions
from ..answer.switches import Switched, Today, best_first, sizes_of, switched, time_today, today_of
from ..candidates.advice import Advice
from ..implementations.offers import offers_of
from ..implementations.predict import Promise
from ..layers.transformer_engine import NAME as TRANSFORMER_ENGINE
from ..targets.base import Refused, comments, refused
from ..targets.megatron import passes_text
from .advisor import Advisor
from .layouts import ComparedLayouts, LayoutQuestion, compare_layouts
from .question import ModelQuestion

QUICK = AdviceOptions(verify=False, bespoke=0)
FEWEST_TOKENS, MOST_SIZES = 64, 7
"""Sizes at which it is asked whether a switch pays: halves of the question's, down to these."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The answer. ``today_us`` is the time of all layers as the framework runs them, ``switches`` the best first.

    ``library_us`` is that with the library's collectives alone, which ``advice`` compares with; both have its calls.

    ``unknown`` names switches of which nothing is known here, ``interrupted`` is whether it was stopped before all was
    found. ``advice`` is that of each workload, with what a kernel of one's own could add. ``graph_us`` is ``today_us``
    where all is replayed in a CUDA graph.
    """

    question: ModelQuestion
    today_us: float
    library_us: float
    switches: tuple[Switched, ...]
    unknown: tuple[str, ...]
    advice: tuple[Advice, ...]
    interrupted: bool = False
    graph_us: float = 0.0

    @property
    def framework(self) -> Framework:
        """What is known of the framework."""
        return self.question.facts

    @property
    def doubt(self) -> str:
        """What to know of the version that the question says, empty if it says none or the one that is known."""
        return version_doubt(self.question.framework)

    @property
    def today(self) -> str:
        """What the framework runs today, in words."""
        one = self.question.of_one
        if one.tp == one.dp == 1:
            return "no collective, since no GPU shares layers with another"
        return self.framework.runs(dp=one.dp, experts=one.model.experts)

    @property
    def first(self) -> Switched | None:
        """What to switch on first, None if nothing pays."""
        return self.switches[0] if self.switches and self.switches[0].pays else None

    @property
    def simulated(self) -> float:
        """The gain over today of the best schedules, as simulated."""
        before = sum(each.serial.best_us for each in self.advice)
        after = sum(each.recommended.best_us for each in self.advice)
        return before / after * self.today_us / self.library_us

    @property
    def file(self) -> str:
        """The text of the file that switches on ``first``, as its framework reads it, with its gain over today.

        Raises
        ------
        Refused
            If nothing pays, or the passes of a layer want what one setting cannot say.
        """
        first, question, facts = self.first, self.question, self.framework
        if first is None:
            raise refused(f"nothing that {facts.title} can switch on pays here", "no file is needed")
        interval = first.promise.interval
        ends = "error not measured" if interval is None else f"{interval[0]:.2f}x to {interval[1]:.2f}x"
        head = comments(
            f"Magus {__version__}, magus ask --for {question.framework}",
            f"{facts.title} {facts.version}: {question.model.name} on {question.gpu}",
            f"{first.switch.what}: {first.promise.speedup:.2f}x over today ({ends})",
            f"costs: {first.switch.costs}",
            *filter(None, [self.doubt]),
        )
        if first.switch.offer != TRANSFORMER_ENGINE:
            return f"{head}{first.setting}\n"
        return head + passes_text(facts.name, self.advice)

    @property
    def kernel(self) -> Promise | None:
        """The gain over today of kernels written for the best schedules; None where none is promised."""
        promises = [advice.promise for advice in self.advice]
        if len(promises) != 1 or promises[0] is None:
            return None
        return promises[0].over(self.today_us / self.library_us)

    @property
    def limit(self) -> float | None:
        """The most that any schedule could gain over today, None without a bound."""
        bounds = [advice.bound for advice in self.advice if advice.bound is not None]
        ticks = sum(bound.ticks for bound in bounds)
        return self.today_us * TICKS_PER_US / ticks if len(bounds) == len(self.advice) else None

    def document(self) -> dict[str, Any]:
        """As JSON of the schema ``magus-ask/1``."""
        question, kernel, first = self.question, self.kernel, self.first
        file: dict[str, str | None] = {"file": None, "no_file": None}
        try:
            file["file"] = self.file
        except Refused as error:
            file["no_file"] = "; ".join(filter(None, (error.rejection.message, error.rejection.hint)))
        return {
            "schema": "magus-ask/1",
            "model": question.model.name,
            "gpu": question.gpu,
            "framework": self.framework.name,
            "version": self.framework.version,
            "version_doubt": self.doubt or None,
            "tokens": question.tokens,
            "today": self.today,
            "today_us": self.today_us,
            "graph_us": self.graph_us,
            "switch_on": None if first is None else first.document(),
            **file,
            "switches": [each.document() for each in self.switches],
            "unknown": list(self.unknown),
            "kernel": None if kernel is None else {"gain": kernel.speedup, "interval": kernel.interval},
            "simulated_gain": self.simulated,
            "most_gain": self.limit,
            "interrupted": self.interrupted,
            "confidence": self.advice[0].confidence.value,
            "confidence_reason": self.advice[0].confidence_reason,
        }


@dataclass(frozen=True, slots=True)
class LayoutAnswer:
    """Which layout to serve with: all ``compared``, and what to switch on in a server of the fastest one."""

    question: LayoutQuestion
    compared: ComparedLayouts
    answer: ModelAnswer

    @property
    def interrupted(self) -> bool:
        """Whether it was stopped before all was found."""
        return self.compared.interrupted or self.answer.interrupted

    def document(self) -> dict[str, Any]:
        """As JSON of the schema ``magus-layouts/1``."""
        question, compared, facts = self.question, self.compared, self.answer.framework
        return {
            "schema": "magus-layouts/1",
            "model": question.model.name,
            "gpu": question.gpu,
            "gpus": question.gpus,
            "framework": facts.name,
            "version": facts.version,
            "tokens": question.tokens,
            "sequences": question.sequences,
            "keys": question.keys,
            "layouts": compared.num_layouts,
            "impossible": compared.impossible,
            "reason": compared.reason,
            "too_large": compared.too_large,
            "limit_bytes": compared.limit,
            "outcomes": [each.document() for each in compared.outcomes],
            "answer": self.answer.document(),
            "interrupted": self.interrupted,
        }


@overload
def ask(
    question: ModelQuestion,
    advisor: Advisor | None = ...,
    options: AdviceOptions = ...,
    should_stop: ShouldStop | None = ...,
) -> ModelAnswer: ...


@overload
def ask(
    question: LayoutQuestion,
    advisor: Advisor | None = ...,
    options: AdviceOptions = ...,
    should_stop: ShouldStop | None = ...,
) -> LayoutAnswer: ...


def ask(
    question: ModelQuestion | LayoutQuestion,
    advisor: Advisor | None = None,
    options: AdviceOptions = QUICK,
    should_stop: ShouldStop | None = None,
) -> ModelAnswer | LayoutAnswer:
    """Return what to switch on first, what it gains over today, and what a kernel could add; or which layout is best.

    Parameters
    ----------
    question
        The model, the machine and the framework; of a ``LayoutQuestion`` the answer is about its fastest layout.
    advisor
        Answers the layers; a new one by default.
    options
        How much to search; the default simulates no small changes of schedules.
    should_stop
        Called now and then; once it returns true, the answer is the best that was found until then.

    Raises
    ------
    RequestError
        If the layer does not divide among the GPUs, does not fit into their memory, or the framework cannot share it
        so, or no layout fits.
    """
    if isinstance(question, LayoutQuestion):
        compared = compare_layouts(question, should_stop or never)
        best = _asked(compared.outcomes[0].question, advisor or Advisor.load(), options, should_stop)
        return LayoutAnswer(question, compared, best)
    return _asked(question, advisor or Advisor.load(), options, should_stop)


def _asked(
    question: ModelQuestion, advisor: Advisor, options: AdviceOptions, should_stop: ShouldStop | None
) -> ModelAnswer:
    """The answer about one way to share a layer."""
    one = question.of_one
    scenarios = [one.scenario(name) for name in one.workloads]
    try:
        advice = tuple(advisor.recommend_many(scenarios, options, threads=len(scenarios), should_stop=should_stop))
    except ScheduleError as error:  # the layer comes from the question, so that is what is refused
        code, message = error.rejection.code, error.rejection.message.removeprefix(f"workload {scenarios[0].name}: ")
        hint = "share a layer among more GPUs (tp), or take GPUs with more memory"
        raise RequestError(code, "model", message, hint if code is Code.MGS402 else error.rejection.hint) from error
    times = [_today(one, each) for each in advice]
    exchanging = any(each.exchange for each in one.switches)
    sent: list[Advice] = []
    with suppress(Cancelled):  # what is known of the layer that runs today is an answer
        if exchanging:
            sending = one.scenario(one.sending, exchange=True)
            sent.append(advisor.recommend(sending, options, should_stop=should_stop))
    today = sum(each.us for each in times)
    found = {each.what: _answered(one, each, (advice, sent), times) for each in one.switches}
    unknown = tuple(what for what, each in found.items() if each is None)
    switches = best_first(each for each in found.values() if each is not None)
    interrupted = any(each.interrupted for each in (*advice, *sent)) or (exchanging and not sent)
    library, graph = sum(each.library_us for each in times), sum(each.graph_us for each in times)
    return ModelAnswer(question, today, library, switches, unknown, advice, interrupted, graph)


def _today(question: ModelQuestion, advice: Advice) -> Today:
    """The times of a workload as it runs today; in training it is the same in a graph, for all that is known."""
    if not question.train:
        return today_of(question.facts, advice.scenario)
    us, library_us = time_today(question.facts, advice)
    return Today(us, us, library_us, None)


def _answered(
    question: ModelQuestion,
    switch: FrameworkSwitch,
    advice: tuple[Sequence[Advice], Sequence[Advice]],
    times: Sequence[Today],
) -> Switched | None:
    """What one switch gains; None where nothing is known of it.

    ``advice`` is of the workloads as they run today, which take ``times``, and of the one that sends rows.
    """
    today = sum(each.us for each in times)
    if switch.sequence:
        return _by_rows(question, switch, today)
    if not switch.exchange:
        return switched(question.facts, switch, advice[0])
    part = times[question.workloads.index(question.sending)].us
    found = switched(question.facts, switch, advice[1], part)
    if found is None:
        return None
    after = today - part + part / found.promise.speedup
    return replace(found, promise=found.promise.over(today / after / found.promise.speedup))


def _by_rows(question: ModelQuestion, switch: FrameworkSwitch, today: float) -> Switched | None:
    """What a switch gains that needs activations by rows, and from how many tokens on."""
    now = _gain_by_rows(question, switch, question.tokens, today)
    if now is None:
        return None
    answer, least = Switched(switch, now, sizes_of(question.scenario(question.workloads[0]))), None
    for tokens in _sizes(question.tokens) if answer.pays else ():
        gain = now if tokens == question.tokens else _gain_at(question, switch, tokens)
        if gain is None or not gain.pays:
            break
        least = tokens
    return replace(answer, pays_from=least)


def _gain_at(question: ModelQuestion, switch: FrameworkSwitch, tokens: int) -> Promise | None:
    """The same with other ``tokens``, over what runs there; None where nothing is known of that."""
    scenarios = (question.scenario(name, tokens) for name in question.workloads)
    return _gain_by_rows(question, switch, tokens, sum(today_of(question.facts, each).us for each in scenarios))


def _sizes(tokens: int) -> Iterator[int]:
    for _ in range(MOST_SIZES):
        if tokens < FEWEST_TOKENS:
            return
        yield tokens
        tokens //= 2


def _gain_by_rows(question: ModelQuestion, switch: FrameworkSwitch, tokens: int, today: float) -> Promise | None:
    """The gain in all workloads, of which those run as today in which nothing is known of it."""
    known, us = list[Promise](), 0.0
    for name in question.workloads:
        offers = offers_of(question.scenario(name, tokens, sequence=True), only=[switch.offer])
        offer = None if offers is None else offers.named(switch.offer)
        us += today_of(question.facts, question.scenario(name, tokens)).us if offer is None else offer.us
        known += [] if offer is None else [offer.promise]
    return known[0].over(today / us / known[0].speedup) if known else None
