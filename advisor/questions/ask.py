"""The answer to one question about a model on a framework: what to switch on first, what it gains over what runs today.

The baseline is what the framework does today: the library's collectives, its own small all_reduce where that is faster,
or an order that it has by default. What it can switch on is compared with that, and nothing else is recommended; what a
kernel of one's own could add is told apart.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ...compiler.from_model.frameworks import Framework, FrameworkSwitch
from ...compiler.ir import TICKS_PER_US, Cancelled, ShouldStop
from ..answer.stages import AdviceOptions
from ..answer.switches import Switched, best_first, sizes_of, switched, time_today
from ..candidates.advice import Advice
from ..candidates.candidate import Candidate
from ..implementations.offers import offers_of
from ..implementations.predict import Promise
from .advisor import Advisor
from .question import ModelQuestion

QUICK = AdviceOptions(verify=False, bespoke=0)
FEWEST_TOKENS, MOST_SIZES = 64, 7
"""Sizes at which it is asked whether a switch pays: halves of the question's, down to these."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The answer. ``today_us`` is the time of all layers as the framework runs them, ``switches`` the best first.

    ``library_us`` is that with the library's collectives alone, which ``advice`` compares with; both have its calls.

    ``unknown`` names switches of which nothing is known here, ``interrupted`` is whether it was stopped before all was
    found. ``advice`` is that of each workload, with what a kernel
    of one's own could add.
    """

    question: ModelQuestion
    today_us: float
    library_us: float
    switches: tuple[Switched, ...]
    unknown: tuple[str, ...]
    advice: tuple[Advice, ...]
    interrupted: bool = False

    @property
    def framework(self) -> Framework:
        """What is known of the framework."""
        return self.question.facts

    @property
    def today(self) -> str:
        """What the framework runs today, in words."""
        return self.framework.runs(dp=self.question.dp, experts=self.question.model.experts)

    @property
    def first(self) -> Switched | None:
        """What to switch on first, None if nothing pays."""
        return self.switches[0] if self.switches and self.switches[0].pays else None

    @property
    def simulated(self) -> float:
        """The gain over today of the best schedules, as simulated."""
        before, after = (sum(one.best_us for one in each) for each in zip(*self._finals, strict=True))
        return float(before / after * self.today_us / self.library_us)

    @property
    def _finals(self) -> tuple[tuple[Candidate, Candidate], ...]:
        """Baseline and recommended schedule of each workload."""
        return tuple((advice.serial, advice.recommended) for advice in self.advice)

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
        return {
            "schema": "magus-ask/1",
            "model": question.model.name,
            "gpu": question.gpu,
            "framework": self.framework.name,
            "version": self.framework.version,
            "tokens": question.tokens,
            "today": self.today,
            "today_us": self.today_us,
            "switch_on": None if first is None else first.document(),
            "switches": [each.document() for each in self.switches],
            "unknown": list(self.unknown),
            "kernel": None if kernel is None else {"gain": kernel.speedup, "interval": kernel.interval},
            "simulated_gain": self.simulated,
            "most_gain": self.limit,
            "interrupted": self.interrupted,
            "confidence": self.advice[0].confidence.value,
            "confidence_reason": self.advice[0].confidence_reason,
        }


def ask(
    question: ModelQuestion,
    advisor: Advisor | None = None,
    options: AdviceOptions = QUICK,
    should_stop: ShouldStop | None = None,
) -> ModelAnswer:
    """Return what to switch on first, what it gains over today, and what a kernel could add.

    Parameters
    ----------
    question
        The model, the machine and the framework.
    advisor
        Answers the layers; a new one by default.
    options
        How much to search; the default simulates no small changes of schedules.
    should_stop
        Called now and then; once it returns true, the answer is the best that was found until then.

    Raises
    ------
    RequestError
        If the layer does not divide among the GPUs, or the framework cannot share it so.
    """
    advisor = advisor or Advisor.load()
    scenarios = [question.scenario(name) for name in question.workloads]
    advice = tuple(advisor.recommend_many(scenarios, options, threads=len(scenarios), should_stop=should_stop))
    today, library = (sum(each) for each in zip(*(time_today(question.facts, each) for each in advice), strict=True))
    exchanging = any(each.exchange for each in question.switches)
    sent: list[Advice] = []
    with suppress(Cancelled):  # what is known of the layer that runs today is an answer
        if exchanging:
            sent.append(advisor.recommend(question.scenario(exchange=True), options, should_stop=should_stop))
    found = {
        each.what: switched(question.facts, each, sent, today)
        if each.exchange
        else _answered(question, each, advice, today)
        for each in question.switches
    }
    unknown = tuple(what for what, each in found.items() if each is None)
    switches = best_first(each for each in found.values() if each is not None)
    interrupted = any(each.interrupted for each in (*advice, *sent)) or (exchanging and not sent)
    return ModelAnswer(question, today, library, switches, unknown, advice, interrupted)


def _answered(
    question: ModelQuestion, switch: FrameworkSwitch, advice: Sequence[Advice], today: float
) -> Switched | None:
    """What one switch gains; None where nothing is known of it."""
    return _by_rows(question, switch, today) if switch.sequence else switched(question.facts, switch, advice)


def _by_rows(question: ModelQuestion, switch: FrameworkSwitch, today: float) -> Switched | None:
    """What a switch gains that needs activations by rows, and from how many tokens on."""
    now = _gain_by_rows(question, switch, question.tokens, today)
    if now is None:
        return None
    answer, least = Switched(switch, now, sizes_of(question.scenario())), None
    for tokens in _sizes(question.tokens) if answer.pays else ():
        gain = now if tokens == question.tokens else _gain_at(question, switch, tokens)
        if gain is None or not gain.pays:
            break
        least = tokens
    return replace(answer, pays_from=least)


def _gain_at(question: ModelQuestion, switch: FrameworkSwitch, tokens: int) -> Promise | None:
    """The same with other ``tokens``, over what runs there; None where nothing is known of that."""
    family = question.facts.all_reduce
    before = offers_of(question.scenario(tokens=tokens), only=[family or switch.offer])
    if before is None or before.library_us is None:
        return None
    return _gain_by_rows(question, switch, tokens, before.fastest_us(family))


def _sizes(tokens: int) -> Iterator[int]:
    for _ in range(MOST_SIZES):
        if tokens < FEWEST_TOKENS:
            return
        yield tokens
        tokens //= 2


def _gain_by_rows(question: ModelQuestion, switch: FrameworkSwitch, tokens: int, today: float) -> Promise | None:
    offers = offers_of(question.scenario(tokens=tokens, sequence=True), only=[switch.offer])
    offer = None if offers is None else offers.named(switch.offer)
    return None if offer is None else offer.promise.over(today / offer.us / offer.promise.speedup)
