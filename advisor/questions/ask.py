"""One question about a model on a framework: what to switch on first, what it gains over what runs today, and how sure.

The baseline is what the framework does today: the library's collectives, or its own small all_reduce where that is
faster. What it can switch on is compared with that, and nothing else is recommended; what a kernel of one's own could
add is told apart.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...compiler.codes import Code
from ...compiler.from_model.config import ModelConfig
from ...compiler.from_model.layer import compiled, unchecked_layer_text
from ...compiler.from_model.request import model_of
from ...compiler.from_model.shipped import Framework, FrameworkSwitch, framework_named, shipped_model
from ...compiler.from_model.whole_layer import BACK, LAYER, TRAINS, Parallelism, parallelism_for
from ...compiler.ir import TICKS_PER_US, Scenario, ShouldStop
from ...compiler.request.request import RequestError
from ...compiler.resolve.expect.expectation import Verdict
from ..answer.stages import AdviceOptions
from ..candidates.advice import Advice
from ..candidates.candidate import Candidate
from ..implementations.offers import Offers, offers_of
from ..implementations.predict import Promise
from .advisor import Advisor

QUICK = AdviceOptions(verify=False, bespoke=0)
STAGE = 8
"""Layers of a stage of a pipeline that trains: those of large models fit no single GPU."""
USUAL_PREFILL, USUAL_KEYS, MOST_COUNT = 8192, 4096, 1 << 20
FEWEST_TOKENS, MOST_SIZES = 64, 7
"""Sizes at which it is asked whether a switch pays: halves of the question's, down to these."""


@dataclass(frozen=True, slots=True)
class ModelQuestion:
    """What should be switched on for ``model`` with ``framework``?

    Attributes
    ----------
    model
        Sizes of the model: ``shipped_model(name)``, or ``model_of(config)``.
    gpu
        A GPU that ships, such as ``b200``.
    framework
        ``vllm``, ``sglang``, ``trtllm`` or ``megatron``.
    tokens
        Tokens of a step that all GPUs hold together: of a prefill, of the sequences of a decode step, of a micro-batch.
    tp, dp, ep
        GPUs that share attention, groups that have tokens of their own, GPUs that share experts.
    keys
        Keys of each sequence in a step of decode, None outside of decode.
    train
        Whether a forward and a backward pass are asked about.
    node
        GPUs of one node.
    """

    model: ModelConfig
    gpu: str
    framework: str
    tokens: int
    tp: int = 8
    dp: int = 1
    ep: int = 1
    keys: int | None = None
    train: bool = False
    node: int = 8

    def __post_init__(self) -> None:
        framework_named(self.framework)
        if self.train and self.framework != TRAINS:
            message = f"{self.framework} does not train"
            raise RequestError(Code.MGS520, "train", message, f"ask for={TRAINS}, or about a prefill or decode")
        if self.train and self.keys is not None:
            raise RequestError(Code.MGS206, "decode", "a step of decode has no backward pass", "leave one of them out")
        if self.ep > 1 and not self.model.experts:
            raise RequestError(Code.MGS310, "ep", f"{self.model.name} has no experts", "leave ep out")
        if self.model.experts and self.ep > self.model.experts:
            message = f"{self.ep} GPUs share {self.model.experts} experts"
            raise RequestError(Code.MGS307, "ep", message, f"at most ep={self.model.experts}")

    @property
    def workloads(self) -> tuple[str, ...]:
        """The workloads that are asked about."""
        return (LAYER, BACK) if self.train else (LAYER,)

    @property
    def can_do(self) -> frozenset[str]:
        """What a switch may need."""
        found = {name for name in ("tp", "dp", "ep") if getattr(self, name) > 1}
        return frozenset(found | {"train" if self.train else "serve"})

    def parallelism(self) -> Parallelism:
        """How the framework shares a layer today."""
        shared = parallelism_for(self.framework, self.gpu, self.tp, self.dp, self.ep, self.node)
        return replace(shared, keys=self.keys)

    def text(self, tokens: int | None = None, *, sequence: bool | None = None) -> str:
        """The layer as ``.mgs`` text; ``sequence`` is whether activations are held by rows, None for as today."""
        shared, model = self.parallelism(), self.model
        shared = shared if sequence is None else replace(shared, sequence=sequence)
        if self.train:
            dense, experts = min(STAGE, model.dense_layers), min(STAGE, model.expert_layers)
            model = replace(model, layers=self.layers, dense_layers=dense, expert_layers=experts)
        return unchecked_layer_text(model, shared, str(tokens or self.tokens))

    @property
    def layers(self) -> int:
        """The layers that are asked about: in training those of a stage of a pipeline."""
        return min(STAGE, self.model.layers) if self.train else self.model.layers


def model_question(
    model: str | Mapping[str, object],
    gpu: str,
    framework: str,
    *,
    tp: int = 8,
    dp: int = 1,
    ep: int = 1,
    prefill: int | None = None,
    decode: int | None = None,
    keys: int | None = None,
    train: bool = False,
    seq_len: int = 4096,
    micro_batch: int = 1,
) -> ModelQuestion:
    """Return the question about one of: a ``prefill`` of so many tokens, a step of ``decode``, a step of training.

    Parameters
    ----------
    model
        The name of a model that ships, the path of a ``config.json``, or what is in one.
    gpu, framework, tp, dp, ep
        As in ``ModelQuestion``.
    prefill
        Tokens of a prefill; 8192 where nothing else is asked.
    decode
        Sequences of a step of decode, each with ``keys``, 4096 by default.
    train
        Whether a forward and a backward pass of ``micro_batch`` sequences of ``seq_len`` tokens are asked about.

    Raises
    ------
    RequestError
        If two things are asked at once, or a name or number cannot be.
    """
    said = [name for name, value in (("prefill", prefill), ("decode", decode), ("train", train or None)) if value]
    if len(said) > 1:
        message = f"{said[0]} and {said[1]} are two questions"
        raise RequestError(Code.MGS206, said[1], message, "leave one of them out")
    for name, value in {"tp": tp, "dp": dp, "ep": ep, "seq_len": seq_len, "micro_batch": micro_batch}.items():
        _check_count(name, value)
    for name, count in {"prefill": prefill, "decode": decode, "keys": keys}.items():
        if count is not None:
            _check_count(name, count)
    tokens = seq_len * micro_batch if train else decode or prefill or USUAL_PREFILL
    shape = _model(model)
    return ModelQuestion(shape, gpu, framework, tokens, tp, dp, ep, (keys or USUAL_KEYS) if decode else None, train)


def _check_count(name: str, value: object) -> None:
    if type(value) is not int or not 1 <= value <= MOST_COUNT:
        message = f"{value!r:.40} is no whole number from 1 to {MOST_COUNT}"
        raise RequestError(Code.MGS307, name, message, f"for instance {name}=8")


def _model(model: str | Mapping[str, object]) -> ModelConfig:
    if not isinstance(model, str):
        return model_of(model)
    return model_of(model) if model.endswith(".json") else shipped_model(model)


@dataclass(frozen=True, slots=True)
class SwitchAnswer:
    """What a switch gains over today; ``pays_from`` are the fewest tokens from which it does, None if not known."""

    switch: FrameworkSwitch
    promise: Promise
    pays_from: int | None = None

    @property
    def pays(self) -> bool:
        """Whether the gain is beyond its error, or worth trying."""
        return self.promise.verdict is not Verdict.SERIAL

    def document(self) -> dict[str, Any]:
        """As JSON."""
        promise = self.promise
        return {
            "switch": self.switch.what,
            "setting": self.setting,
            "gain": promise.speedup,
            "interval": promise.interval,
            "verdict": promise.verdict.value,
            "from_tokens": self.pays_from,
            "costs": self.switch.costs,
        }

    @property
    def setting(self) -> str:
        """What to write to have it."""
        return self.switch.setting.replace("TOKENS", str(self.pays_from or 0))


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The answer. ``today_us`` is the time of all layers as the framework runs them, ``switches`` the best first.

    ``library_us`` is that with the library's collectives alone, which ``advice`` compares with; both have its calls.

    ``unknown`` names switches of which nothing is known here. ``advice`` is that of each workload, with what a kernel
    of one's own could add.
    """

    question: ModelQuestion
    framework: Framework
    today_us: float
    library_us: float
    switches: tuple[SwitchAnswer, ...]
    unknown: tuple[str, ...]
    advice: tuple[Advice, ...]

    @property
    def today(self) -> str:
        """What the framework runs today, in words."""
        return self.framework.runs(dp=self.question.dp, experts=self.question.model.experts)

    @property
    def first(self) -> SwitchAnswer | None:
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
        return _over(promises[0], self.today_us / self.library_us)

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
            "interrupted": any(advice.interrupted for advice in self.advice),
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
    framework = framework_named(question.framework)
    advisor = advisor or Advisor.load()
    scenarios = [compiled(question.text()).scenario(name) for name in question.workloads]
    advice = tuple(advisor.recommend(scenario, options, should_stop=should_stop) for scenario in scenarios)
    today, library = (sum(each) for each in zip(*(_today_us(framework, each) for each in advice), strict=True))
    asked = [switch for switch in framework.switches if question.can_do.issuperset(switch.needs)]
    found = {switch.what: _answered(question, framework, switch, advice, today) for switch in asked}
    switches = sorted((each for each in found.values() if each is not None), key=lambda each: -each.promise.speedup)
    switches.sort(key=lambda each: not each.pays)
    unknown = tuple(what for what, each in found.items() if each is None)
    return ModelAnswer(question, framework, today, library, tuple(switches), unknown, advice)


def _today_us(framework: Framework, advice: Advice) -> tuple[float, float]:
    """The time as the framework runs it, and by the library alone; of the baseline where these are not known."""
    offers = advice.offers
    if offers is None or offers.library_us is None:
        return advice.serial.best_us, advice.serial.best_us
    return _with_own_all_reduce(framework, offers, offers.library_us), offers.library_us


def _with_own_all_reduce(framework: Framework, offers: Offers, library_us: float) -> float:
    """The time with the framework's small all_reduce where that is faster."""
    family = framework.all_reduce
    own = [offer.us for offer in offers.offers if family and offer.name.startswith(family)]
    return min([library_us, *own])


def _answered(
    question: ModelQuestion, framework: Framework, switch: FrameworkSwitch, advice: Sequence[Advice], today: float
) -> SwitchAnswer | None:
    """What one switch gains; None where nothing is known of it."""
    if switch.sequence:
        return _by_rows(question, framework, switch, today)
    found = [pair for each in advice if (pair := _time_of(framework, each, switch.offer)) is not None]
    if len(found) != len(advice):
        return None
    (_, promise), us = found[0], sum(us for us, _ in found)
    return SwitchAnswer(switch, _over(promise, today / us / promise.speedup))


def _time_of(framework: Framework, advice: Advice, name: str) -> tuple[float, Promise] | None:
    """The time of an offer with its promise, or of a schedule of that name with the library's calls and no error."""
    offer = advice.offer(name)
    if offer is not None:
        return offer.us, offer.promise
    stem = name.removesuffix("_overlap")
    known = (one.best_us for one in advice.candidates if one.expression.startswith(stem))
    us = min(known, default=None)
    if us is None:
        return None
    _, library_us = _today_us(framework, advice)
    return us + library_us - advice.serial.best_us, Promise(advice.serial.best_us / us, None)


def _by_rows(
    question: ModelQuestion, framework: Framework, switch: FrameworkSwitch, today: float
) -> SwitchAnswer | None:
    """What a switch gains that needs activations by rows, and from how many tokens on."""
    now = _gain_by_rows(question, switch, question.tokens, today)
    if now is None:
        return None
    answer, least = SwitchAnswer(switch, now), None
    for tokens in _sizes(question.tokens) if answer.pays else ():
        before = offers_of(_scenario(question, tokens, None))
        if before is None or before.library_us is None:
            break
        now_us = _with_own_all_reduce(framework, before, before.library_us)
        gain = _gain_by_rows(question, switch, tokens, now_us)
        if gain is None or gain.verdict is Verdict.SERIAL:
            break
        least = tokens
    return replace(answer, pays_from=least)


def _sizes(tokens: int) -> Iterator[int]:
    for _ in range(MOST_SIZES):
        if tokens < FEWEST_TOKENS:
            return
        yield tokens
        tokens //= 2


def _gain_by_rows(question: ModelQuestion, switch: FrameworkSwitch, tokens: int, today: float) -> Promise | None:
    offers = offers_of(_scenario(question, tokens, True))
    offer = None if offers is None else offers.named(switch.offer)
    return None if offer is None else _over(offer.promise, today / offer.us / offer.promise.speedup)


def _scenario(question: ModelQuestion, tokens: int, sequence: bool | None) -> Scenario:
    return compiled(question.text(tokens, sequence=sequence)).scenario(LAYER)


def _over(promise: Promise, factor: float) -> Promise:
    """The same promise over another baseline."""
    graph, host = (None if each is None else each * factor for each in (promise.in_graph, promise.on_host))
    return replace(promise, speedup=promise.speedup * factor, in_graph=graph, on_host=host)
