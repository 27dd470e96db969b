"""Which layout to serve a model with: those that a framework can do and that fit, each with its time and its memory.

All layouts take the same tokens, of sequences of the same length, on the same GPUs. A layout may be several servers,
each with a part of the GPUs and of the tokens, that share nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...compiler.codes import Code
from ...compiler.from_model.config import ModelConfig
from ...compiler.from_model.frameworks import Framework
from ...compiler.ir import Cancelled, Scenario, ShouldStop
from ...compiler.ir.step import weights_of
from ...compiler.ir.stopping import never
from ...compiler.request.request import RequestError, shipped_gpu
from ...compiler.text.units import bytes_text
from ..answer.switches import Today, today_of
from ..steps.outcome import MARGIN, RESERVED_BYTES, made_bytes
from ..steps.times import elements_of_rank
from .question import MOST_COUNT, ModelQuestion, model_named, requested_tokens

MOST_GPUS = 64
"""GPUs of which layouts are compared, and up to which one is looked for that fits."""

_NO_WEIGHTS = ("x", "r", "cache")
"""Names of tensors of a layer that come with its tokens (``from_model/whole_layer.py``)."""


@dataclass(frozen=True, slots=True)
class ServingLayout:
    """So many ``servers``, each with ``dp`` groups of ``tp`` GPUs that share attention, and ``ep`` that share experts.

    With ``ep`` 1 the GPUs of a server share each expert by its columns.
    """

    servers: int
    tp: int
    dp: int
    ep: int

    @property
    def words(self) -> str:
        """In short: ``2 x TP2 DP2 EP4``."""
        axes = {"TP": self.tp, "DP": self.dp, "EP": self.ep}
        sizes = " ".join(f"{axis}{size}" for axis, size in axes.items() if size > 1) or "1 GPU"
        return sizes if self.servers == 1 else f"{self.servers} x {sizes}"

    def flags(self, facts: Framework) -> str:
        """What to write for it, for each server."""
        says_both = self.dp > 1 and "GPUS" in facts.dp_flag
        known = ((facts.tp_flag, 1 if says_both else self.tp), (facts.dp_flag, self.dp), (facts.ep_flag, self.ep))
        flags = " ".join(flag for flag, size in known if size > 1 and flag)
        numbers = {"GPUS": self.tp * self.dp, "TP": self.tp, "DP": self.dp, "EP": self.ep}
        for word, number in numbers.items():
            flags = flags.replace(f" {word}", f" {number}")
        return flags or "its defaults"


@dataclass(frozen=True, slots=True)
class LayoutQuestion:
    """Which layout of ``gpus`` GPUs should serve ``model`` with ``framework``?

    Attributes
    ----------
    model, gpu, framework, keys, node
        As of ``ModelQuestion``.
    gpus
        The number of GPUs, in nodes of ``node``.
    tokens
        Tokens of a step of all GPUs together, the same in each layout.
    sequences
        Number of sequences of equal length in a prefill, the same in each layout; None in decode.

    Raises
    ------
    RequestError
        If the framework does not serve, or a number cannot be.
    """

    model: ModelConfig
    gpu: str
    framework: str
    gpus: int
    tokens: int
    keys: int | None = None
    sequences: int | None = None
    node: int = 8

    def __post_init__(self) -> None:
        if type(self.gpus) is not int or not 1 <= self.gpus <= MOST_GPUS:
            message = f"{self.gpus!r:.40} is no whole number from 1 to {MOST_GPUS}"
            raise RequestError(Code.MGS307, "gpus", message, "for instance gpus=8")
        if self.gpus > self.node and self.gpus % self.node:
            message = f"{self.gpus} GPUs do not fill nodes of {self.node}"
            raise RequestError(Code.MGS304, "gpus", message, "take whole nodes")
        self.of(ServingLayout(1, self.gpus, 1, 1))
        shipped_gpu(self.gpu)

    @property
    def layouts(self) -> tuple[ServingLayout, ...]:
        """All layouts, the ones of most GPUs of a server first."""
        return tuple(self._layouts())

    def _layouts(self) -> Iterator[ServingLayout]:
        has_experts = self.model.experts > 0
        for ranks in _divisors(self.gpus):
            for tp in _divisors(ranks) if has_experts else (ranks,):
                for ep in (ranks, 1) if has_experts and ranks > 1 else (1,):
                    yield ServingLayout(self.gpus // ranks, tp, ranks // tp, ep)

    def of(self, layout: ServingLayout) -> ModelQuestion:
        """Return the question about one server of a layout.

        Raises
        ------
        RequestError
            If the tokens or sequences do not divide among the servers, or the framework cannot do it.
        """
        for field, number in (("tokens", self.tokens), ("sequences", self.sequences or layout.servers)):
            if number % layout.servers:
                message = f"{number} {field} do not divide among {layout.servers} servers"
                raise RequestError(Code.MGS304, field, message, f"a multiple of {layout.servers}")
        sequences = None if self.sequences is None else self.sequences // layout.servers
        shared = self.tokens // layout.servers, layout.tp, layout.dp, layout.ep, self.keys
        return ModelQuestion(self.model, self.gpu, self.framework, *shared, node=self.node, sequences=sequences)


def layout_question(
    model: str | dict[str, object],
    gpu: str,
    framework: str,
    gpus: int,
    *,
    prefill: int | None = None,
    decode: int | None = None,
    keys: int | None = None,
    sequences: int | None = None,
) -> LayoutQuestion:
    """Return the question which layout serves best: a ``prefill`` of so many tokens of all GPUs, or a ``decode``.

    Parameters
    ----------
    model, gpu, framework, prefill, decode, keys
        As of ``model_question``.
    gpus
        The number of GPUs.
    sequences
        Number of sequences of equal length in a prefill; by default as many as there are GPUs.

    Raises
    ------
    RequestError
        If both prefill and decode are given, or a name or number is wrong.
    """
    if prefill is not None and decode is not None:
        raise RequestError(Code.MGS206, "decode", "prefill and decode are two questions", "leave one of them out")
    usual = gpus if decode is None and type(gpus) is int and 1 <= gpus <= MOST_COUNT else None
    count = usual if sequences is None else sequences
    tokens, of_each = requested_tokens(prefill, decode, keys, sequences)
    if sequences is None and tokens % (usual or 1):
        message = f"{tokens} tokens do not divide among {gpus} GPUs with a sequence each"
        hint = f"a multiple of {gpus}, or say how many sequences there are"
        raise RequestError(Code.MGS304, "prefill", message, hint)
    return LayoutQuestion(model_named(model), gpu, framework, gpus, tokens, of_each, count)


def _divisors(number: int) -> Iterator[int]:
    return (each for each in range(number, 0, -1) if number % each == 0)


@dataclass(frozen=True, slots=True)
class ServingMemory:
    """Bytes of one GPU: weights, keys and values of all sequences, and the results of one layer."""

    weights: int
    cache: int
    results: int

    @property
    def total(self) -> int:
        """With the margin of the allocator and what no tensor has, as of a training step."""
        return int((self.weights + self.cache + self.results) * (1 + MARGIN)) + RESERVED_BYTES


def serving_memory(question: ModelQuestion, scenarios: Sequence[Scenario]) -> ServingMemory:
    """Return the memory of a GPU of a server; ``scenarios`` are those of all its layers.

    Embeddings and the last product are counted apart, each shared as attention is, and the router of experts is not.
    """
    one, model = question.of_one, question.model
    ends = model.dtype.bytes_of(-(-2 * model.vocabulary * model.hidden // one.tp))
    layers = sum(_weight_bytes(each) * each.num_layers for each in scenarios)
    results = max(made_bytes(each) for each in scenarios)
    return ServingMemory(layers + ends, _cache_bytes(one), results)


def _weight_bytes(scenario: Scenario) -> int:
    held = (each for each in weights_of(scenario) if each.name not in _NO_WEIGHTS)
    return sum(each.dtype.bytes_of(elements_of_rank(each, scenario.num_ranks)) for each in held)


def _cache_bytes(one: ModelQuestion) -> int:
    """Keys and values of all layers; heads that are fewer than the GPUs are held several times."""
    model, latent = one.model, one.model.latent
    heads = max(1, model.kv_heads // one.tp)
    width = 2 * heads * model.head_dim if latent is None else latent.rank + latent.rope
    length = one.keys or one.tokens // (one.sequences or one.dp)
    sequences = one.tokens if one.keys is not None else one.sequences or one.dp
    seen = length if model.window is None else min(length, model.window)
    layers = model.dense_layers + model.expert_layers
    return model.dtype.bytes_of(-(-sequences // one.dp) * seen * width * layers)


@dataclass(frozen=True)
class LayoutOutcome:
    """A layout that fits: its memory, and its times as the framework runs it today, replayed in a CUDA graph.

    ``layer_us`` is one layer, with experts where the model has some; ``model_us`` all layers, and ``exposed_us`` what
    collectives take of that, None if it is not known.
    """

    layout: ServingLayout
    question: ModelQuestion
    memory: ServingMemory
    layer_us: float
    model_us: float
    exposed_us: float | None

    @cached_property
    def tokens_per_gpu_s(self) -> float:
        """Tokens of a step a second and GPU: all servers run side by side."""
        return self.question.tokens / (self.layout.tp * self.layout.dp) / self.model_us * 1e6

    def document(self) -> dict[str, Any]:
        """As JSON; times in us."""
        layout, memory = self.layout, self.memory
        return {
            "layout": layout.words,
            "servers": layout.servers,
            "tp": layout.tp,
            "dp": layout.dp,
            "ep": layout.ep,
            "layer_us": self.layer_us,
            "model_us": self.model_us,
            "exposed_us": self.exposed_us,
            "tokens_per_gpu_s": self.tokens_per_gpu_s,
            "weights_bytes": memory.weights,
            "cache_bytes": memory.cache,
            "memory_bytes": memory.total,
            "flags": layout.flags(self.question.facts),
        }


@dataclass(frozen=True, slots=True)
class ComparedLayouts:
    """What became of all layouts: ``outcomes`` fit and were timed, the fastest first.

    ``impossible`` the framework cannot do or do not divide, for ``reason`` of the first of them; ``too_large`` do not
    fit into ``limit`` bytes. ``interrupted`` is whether some were left out.
    """

    outcomes: tuple[LayoutOutcome, ...]
    num_layouts: int
    impossible: int
    too_large: int
    limit: int
    reason: str = ""
    interrupted: bool = False


def compare_layouts(question: LayoutQuestion, should_stop: ShouldStop = never) -> ComparedLayouts:
    """Return all layouts compared. A layer that several have is timed once.

    Raises
    ------
    RequestError
        If none can be or fits; the hint says how many GPUs do.
    Cancelled
        If ``should_stop`` returned true before any was timed.
    """
    fitting, impossible, too_large, reason = list[_Fitting](), 0, 0, ""
    for layout in question.layouts:
        try:
            found = _fitting(question, layout)
        except RequestError as error:
            impossible, reason = impossible + 1, reason or f"{layout.words}: {error.message}"
            continue
        fits = found.memory.total <= found.limit
        fitting += [found] if fits else []
        too_large += not fits
    if not fitting:
        raise _nothing_fits(question, reason)
    times, outcomes = dict[Scenario, Today](), list[LayoutOutcome]()
    for each in fitting:
        if should_stop():
            break
        outcomes.append(each.timed(times))
    if not outcomes:
        raise Cancelled
    outcomes.sort(key=lambda each: (each.model_us, each.memory.total))
    counts = len(question.layouts), impossible, too_large, fitting[0].limit, reason
    return ComparedLayouts(tuple(outcomes), *counts, len(outcomes) < len(fitting))


@dataclass(frozen=True, slots=True)
class _Fitting:
    """A layout that can be, with the scenarios of its layers: first those that are asked about."""

    layout: ServingLayout
    question: ModelQuestion
    scenarios: tuple[Scenario, ...]
    memory: ServingMemory

    @property
    def limit(self) -> int:
        """The memory of a GPU."""
        return self.scenarios[0].system.gpu.hbm.capacity_bytes

    def timed(self, times: dict[Scenario, Today]) -> LayoutOutcome:
        """With its times, of which ``times`` has those that are known."""
        facts, main = self.question.facts, len(self.question.workloads)
        for each in self.scenarios:
            if each not in times:
                times[each] = today_of(facts, each)
        found = [times[each] for each in self.scenarios]
        layer_us = sum(each.graph_us for each in found[:main]) / self.scenarios[0].num_layers
        waits = [each.exposed_us for each in found if each.exposed_us is not None]
        exposed = sum(waits) if len(waits) == len(found) else None
        us = sum(each.graph_us for each in found)
        return LayoutOutcome(self.layout, self.question, self.memory, layer_us, us, exposed)


def _fitting(question: LayoutQuestion, layout: ServingLayout) -> _Fitting:
    of = question.of(layout)
    scenarios = tuple(of.scenario(name) for name in (*of.workloads, *of.others))
    return _Fitting(layout, of, scenarios, serving_memory(of, scenarios))


def _nothing_fits(question: LayoutQuestion, reason: str) -> RequestError:
    """Why no layout can be used, and with how many GPUs one would fit."""
    least = min(_memories(question, question.gpus), key=lambda each: each.memory.total, default=None)
    if least is None:
        return RequestError(Code.MGS520, "gpus", f"no layout can be: {reason}", "another number of GPUs or framework")
    message = f"no layout fits into {bytes_text(least.limit)}: {least.layout.words} needs least, "
    message += bytes_text(least.memory.total)
    doubled = [gpus for shift in range(1, 7) if (gpus := question.gpus << shift) <= MOST_GPUS]
    for gpus in (each for each in doubled if each <= question.node or each % question.node == 0):
        found = [each for each in _memories(question, gpus) if each.memory.total <= each.limit]
        if found:
            near = min(found, key=lambda each: each.memory.total)
            hint = f"nearest are {gpus} GPUs: {near.layout.words} needs {bytes_text(near.memory.total)}"
            return RequestError(Code.MGS510, "gpus", message, hint)
    return RequestError(Code.MGS510, "gpus", message, f"not even {MOST_GPUS} GPUs fit")


def _memories(question: LayoutQuestion, gpus: int) -> Iterator[_Fitting]:
    """All layouts of so many GPUs that can be; a prefill has as many sequences more."""
    sequences = None if question.sequences is None else question.sequences * (gpus // question.gpus)
    tokens = question.tokens if sequences is None or question.tokens % sequences == 0 else sequences
    sizes = question.model, question.gpu, question.framework, gpus, tokens, question.keys, sequences
    wider = LayoutQuestion(*sizes, node=question.node)
    for layout in wider.layouts:
        try:
            yield _fitting(wider, layout)
        except RequestError:
            continue
