"""One question about a model on a framework, checked, and the layer that it is about."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ...compiler.codes import Code
from ...compiler.from_model.config import ModelConfig
from ...compiler.from_model.frameworks import (
    Experts,
    Framework,
    FrameworkSwitch,
    Need,
    Parallelism,
    framework_named,
    frameworks,
    parallelism_for,
)
from ...compiler.from_model.layer import compiled, unchecked_layer_text
from ...compiler.from_model.request import model_of, shipped_model
from ...compiler.from_model.whole_layer import ATTENTION, BACK, DENSE, EXPERTS, LAYER
from ...compiler.ir import Scenario
from ...compiler.request.request import RequestError, shipped_gpu

STAGE = 8
"""Layers of a stage of a pipeline that trains: those of large models fit no single GPU."""
USUAL_PREFILL, USUAL_KEYS, MOST_COUNT = 8192, 4096, 1 << 20
NAMED = {"xla"}
"""Implementations without measured costs, which are simulated only where a file names them."""


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
        A name in ``frameworks()``: ``vllm``, ``sglang``, ``megatron``, ``torchtitan`` and others; or with a version,
        ``vllm@0.11``.
    tokens
        Tokens of a step that all GPUs hold together: of a prefill, of the sequences of a decode step, of a micro-batch.
    tp, dp, ep
        GPUs that share attention, groups that have tokens of their own, GPUs that share experts.
    keys
        Keys of each sequence in a step of decode, None outside of decode.
    train
        Whether the question is about a forward and a backward pass.
    node
        GPUs of one node.
    sequences
        Number of sequences of equal length in a prefill; None is one, or one for each group with its own tokens.
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
    sequences: int | None = None

    def __post_init__(self) -> None:
        self._check_framework()
        if self.train and self.keys is not None:
            raise RequestError(Code.MGS206, "decode", "a step of decode has no backward pass", "leave one of them out")
        if self.ep > 1 and not self.model.experts:
            raise RequestError(Code.MGS310, "ep", f"{self.model.name} has no experts", "leave ep out")
        if self.model.experts and self.ep > self.model.experts:
            message = f"{self.ep} GPUs share {self.model.experts} experts"
            raise RequestError(Code.MGS307, "ep", message, f"at most ep={self.model.experts}")

    def _check_framework(self) -> None:
        facts = framework_named(self.framework)
        if not (facts.trains if self.train else facts.serves):
            does, what = ("train", "a prefill or decode") if self.train else ("serve", "training")
            others = ", ".join(name for name, each in frameworks().items() if getattr(each, f"{does}s"))
            hint = f"ask for={others}, or about {what}"
            raise RequestError(Code.MGS520, "train" if self.train else "for", f"{facts.name} does not {does}", hint)

    @property
    def facts(self) -> Framework:
        """What is known of the framework."""
        return framework_named(self.framework)

    @property
    def workloads(self) -> tuple[str, ...]:
        """The workloads that are asked about, of a model with experts those of layers that have them."""
        if self.of_one.in_groups:
            return ATTENTION, EXPERTS
        return (LAYER, BACK) if self.train else (LAYER,)

    @property
    def others(self) -> tuple[str, ...]:
        """The workloads of the other layers of a model that serves."""
        both = self.model.dense_layers and self.model.expert_layers
        return (DENSE,) if both and not self.train else ()

    @property
    def sending(self) -> str:
        """The workload in which rows go to their experts."""
        return EXPERTS if EXPERTS in self.workloads else LAYER

    @property
    def in_groups(self) -> bool:
        """Whether several groups of GPUs share attention each, and experts all together."""
        return self.tp > 1 and self.dp > 1

    @property
    def of_one(self) -> "ModelQuestion":
        """The question about one of the groups that share nothing: a model that serves, without experts, by data."""
        if self.dp == 1 or self.train or self.model.experts:
            return self
        for field, number in (("tokens", self.tokens), ("sequences", self.sequences or self.dp)):
            if number % self.dp:
                raise _undivided(field, number, self.dp)
        sequences = None if self.sequences is None else self.sequences // self.dp
        return replace(self, dp=1, tokens=self.tokens // self.dp, sequences=sequences)

    @property
    def can_do(self) -> frozenset[Need]:
        """What a switch may need."""
        found = {need for need in (Need.TP, Need.DP, Need.EP) if getattr(self, need.value) > 1}
        shared = {Need.SHARED} if self.dp > 1 and self.facts.shares_weights else set()
        return frozenset(found | shared | {Need.TRAIN if self.train else Need.SERVE})

    @property
    def switches(self) -> tuple[FrameworkSwitch, ...]:
        """What the framework can switch on here."""
        return tuple(each for each, fits in self._switches if fits)

    @property
    def not_here(self) -> tuple[FrameworkSwitch, ...]:
        """What it could switch on, on another GPU or of another type."""
        return tuple(each for each, fits in self._switches if not fits)

    @property
    def _switches(self) -> Iterator[tuple[FrameworkSwitch, bool]]:
        """The switches that apply to the question, each with whether it is for this GPU and this type."""
        gpu, dtype = shipped_gpu(self.gpu).name, self.model.dtype.value
        return ((each, each.fits(gpu, dtype)) for each in self.facts.switches if self.can_do.issuperset(each.needs))

    def parallelism(self) -> Parallelism:
        """How the framework shares a layer today."""
        if self.tp == self.dp == 1 and not self.train:
            alone = Parallelism(self.gpu, 1, False, self.node, Experts.SLICED, framework=self.framework)
            return replace(alone, keys=self.keys, sequences=self.sequences)
        shared = parallelism_for(self.framework, self.gpu, self.tp, self.dp, self.ep, self.node)
        if shared.groups > 1 and self.train:
            message = f"a layer of {self.dp} groups of {self.tp} GPUs that share attention is several workloads"
            hint = "write them with magus from-model and advise on that file; nearest here is --tp 1"
            raise RequestError(Code.MGS520, "dp", message, hint)
        decoded = self.tokens if self.keys else self.dp  # a step of decode has a token of each sequence
        for number in (self.sequences or self.dp, decoded):
            if number % self.dp:
                raise _undivided("sequences", number, self.dp)
        return replace(shared, keys=self.keys, sequences=self.sequences)

    def text(self, tokens: int | None = None, *, sequence: bool | None = None, exchange: bool = False) -> str:
        """The layer as ``.mgs`` text, as it is shared today.

        Else ``sequence`` is whether activations are held by rows; with ``exchange`` rows are sent to their experts.
        """
        if self.of_one is not self:
            return self.of_one.text(tokens and tokens // self.dp, sequence=sequence, exchange=exchange)
        shared, model = self.parallelism(), self.model
        shared = shared if sequence is None else replace(shared, sequence=sequence)
        shared = replace(shared, experts=Experts.SENT) if exchange else shared
        if self.train:
            dense, experts = min(STAGE, model.dense_layers), min(STAGE, model.expert_layers)
            model = replace(model, layers=self.layers, dense_layers=dense, expert_layers=experts)
        text = unchecked_layer_text(model, shared, str(tokens or self.tokens))
        for offer in sorted({each.offer for each in self.switches} & NAMED):
            text = text.replace("use ", f'use "implementations/{offer}"\nuse ', 1)
            text += "".join(f"explore {name} {{ implementations {offer} }}\n" for name in self.workloads)
        return text

    def scenario(
        self,
        workload: str = LAYER,
        tokens: int | None = None,
        *,
        sequence: bool | None = None,
        exchange: bool = False,
    ) -> Scenario:
        """One of the ``workloads``, compiled; what else may be asked is as in ``text``."""
        return compiled(self.text(tokens, sequence=sequence, exchange=exchange)).scenario(workload)

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
    sequences: int | None = None,
) -> ModelQuestion:
    """Return the question about one of: a ``prefill`` of so many tokens, a step of ``decode``, a step of training.

    Parameters
    ----------
    model
        The name of a model that ships, the path of a ``config.json``, or what is in one.
    gpu, framework, tp, dp, ep
        As in ``ModelQuestion``.
    prefill
        Tokens of a prefill; 8192 unless ``decode`` or ``train`` is given.
    decode
        Sequences of a step of decode, each with ``keys``, 4096 by default.
    train
        Whether the question is about a forward and a backward pass, of ``micro_batch`` sequences of ``seq_len``
        tokens in each of the ``dp`` groups.
    sequences
        Number of sequences of equal length in a prefill; one by default, or one for each of the ``dp`` groups.

    Raises
    ------
    RequestError
        If two of prefill, decode and training are given, or a name or number is wrong.
    """
    said = [name for name, value in (("prefill", prefill), ("decode", decode), ("train", train or None)) if value]
    if len(said) > 1:
        message = f"{said[0]} and {said[1]} are two questions"
        raise RequestError(Code.MGS206, said[1], message, "leave one of them out")
    for name, value in {"tp": tp, "dp": dp, "ep": ep, "seq_len": seq_len, "micro_batch": micro_batch}.items():
        _check_count(name, value)
    tokens, of_each = requested_tokens(prefill, decode, keys, sequences)
    if train and sequences is not None:
        raise RequestError(Code.MGS206, "sequences", "a micro-batch says how many it has", "say micro_batch=N")
    tokens = seq_len * micro_batch * dp if train else tokens
    shape = model_named(model)
    return ModelQuestion(shape, gpu, framework, tokens, tp, dp, ep, of_each, train, sequences=sequences)


def requested_tokens(
    prefill: int | None, decode: int | None, keys: int | None, sequences: int | None
) -> tuple[int, int | None]:
    """Return the tokens of a prefill, or of a step of decode and the keys of each of its sequences.

    Raises
    ------
    RequestError
        If a number cannot be, or ``sequences`` are said of a step of decode or do not divide the tokens.
    """
    for name, count in {"prefill": prefill, "decode": decode, "keys": keys, "sequences": sequences}.items():
        if count is not None:
            _check_count(name, count)
    if decode is not None and sequences is not None:
        raise RequestError(
            Code.MGS206, "sequences", "decode says how many sequences there are", "leave one of them out"
        )
    tokens = decode or prefill or USUAL_PREFILL
    if tokens % (sequences or 1):
        message = f"{tokens} tokens are not {sequences} sequences of equal length"
        raise RequestError(Code.MGS304, "sequences", message, "sequences that divide the tokens")
    return tokens, (keys or USUAL_KEYS) if decode else None


def _undivided(field: str, number: int, groups: int) -> RequestError:
    message = f"{number} {field} do not divide among {groups} groups that have their own"
    return RequestError(Code.MGS304, field, message, f"a multiple of {groups}")


def _check_count(name: str, value: object) -> None:
    if type(value) is not int or not 1 <= value <= MOST_COUNT:
        message = f"{value!r:.40} is no whole number from 1 to {MOST_COUNT}"
        raise RequestError(Code.MGS307, name, message, f"for instance {name}=8")


def model_named(model: str | Mapping[str, object]) -> ModelConfig:
    """Return the sizes of a model: one that ships by its name, a ``config.json`` by its path or as it is."""
    if not isinstance(model, str):
        return model_of(model)
    return model_of(model) if model.endswith(".json") else shipped_model(model)
