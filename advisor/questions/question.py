"""One question about a model on a framework, checked, and the layer that it is about."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ...compiler.codes import Code
from ...compiler.from_model.config import ModelConfig
from ...compiler.from_model.frameworks import Framework, FrameworkSwitch, Need, framework_named, frameworks
from ...compiler.from_model.layer import compiled, unchecked_layer_text
from ...compiler.from_model.request import model_of, shipped_model
from ...compiler.from_model.whole_layer import BACK, LAYER, Experts, Parallelism, parallelism_for
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
        A name in ``frameworks()``: ``vllm``, ``sglang``, ``megatron``, ``torchtitan`` and others.
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
            raise RequestError(Code.MGS520, "train" if self.train else "for", f"{self.framework} does not {does}", hint)

    @property
    def facts(self) -> Framework:
        """What is known of the framework."""
        return framework_named(self.framework)

    @property
    def workloads(self) -> tuple[str, ...]:
        """The workloads that are asked about."""
        return (LAYER, BACK) if self.train else (LAYER,)

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
        shared = parallelism_for(self.framework, self.gpu, self.tp, self.dp, self.ep, self.node)
        if shared.groups > 1:
            message = f"a layer of {self.dp} groups of {self.tp} GPUs that share attention is several workloads"
            hint = "write them with magus from-model and advise on that file; nearest here is --tp 1"
            raise RequestError(Code.MGS520, "dp", message, hint)
        return replace(shared, keys=self.keys)

    def text(self, tokens: int | None = None, *, sequence: bool | None = None, exchange: bool = False) -> str:
        """The layer as ``.mgs`` text, as it is shared today.

        Else ``sequence`` is whether activations are held by rows; with ``exchange`` rows are sent to their experts.
        """
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
        Whether a forward and a backward pass of ``micro_batch`` sequences of ``seq_len`` tokens are asked about, of
        each of the ``dp`` groups.

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
    tokens = seq_len * micro_batch * dp if train else decode or prefill or USUAL_PREFILL
    shape = model_named(model)
    return ModelQuestion(shape, gpu, framework, tokens, tp, dp, ep, (keys or USUAL_KEYS) if decode else None, train)


def _check_count(name: str, value: object) -> None:
    if type(value) is not int or not 1 <= value <= MOST_COUNT:
        message = f"{value!r:.40} is no whole number from 1 to {MOST_COUNT}"
        raise RequestError(Code.MGS307, name, message, f"for instance {name}=8")


def model_named(model: str | Mapping[str, object]) -> ModelConfig:
    """Return the sizes of a model: one that ships by its name, a ``config.json`` by its path or as it is."""
    if not isinstance(model, str):
        return model_of(model)
    return model_of(model) if model.endswith(".json") else shipped_model(model)
