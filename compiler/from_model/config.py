"""The sizes of a language model, read from a ``config.json`` in the form of Hugging Face's transformers."""

from dataclasses import dataclass
from pathlib import Path

from ..codes import Code
from ..ir import DType
from ..text.diagnostics import CompileError, Report
from ..text.json_items import Item, JsonPlace, read_json
from ..text.load import read_source
from ..text.source import Source, Span

MAX_WIDTH = 1 << 24
MAX_EXPERTS = 1 << 14
_DTYPES = {"bfloat16": DType.BF16, "float16": DType.FP16, "float8_e4m3fn": DType.FP8, "float32": DType.FP32}
# Names that model families give to the same number, the first that is there counts.
_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts")
_WITHOUT_GATE = frozenset(
    {
        "gpt2",
        "gpt_neox",
        "gpt_neo",
        "gptj",
        "gpt_bigcode",
        "opt",
        "bloom",
        "falcon",
        "phi",
        "starcoder2",
        "mpt",
        "codegen",
    }
)
"""Families whose MLP is one projection up and one down, by their ``model_type``."""

_LEFT_OUT = (
    ("first_k_dense_replace", "dense layers before those with experts"),
    ("intermediate_size_mlp", "dense layers between those with experts"),
    ("quantization_config", "quantized weights: tensors have the type of the activations"),
)
_LATENT_HEADS = (("qk_nope_head_dim", 128), ("qk_rope_head_dim", 64), ("v_head_dim", 128))
_EXPERT_WIDTHS = ("moe_intermediate_size", "intermediate_size")


@dataclass(frozen=True, slots=True)
class Latent:
    """Attention that compresses keys and values to ``rank`` columns (DeepSeek-V2, arXiv 2405.04434).

    Queries are compressed to ``query_rank`` columns, not at all where that is 0. ``head_dim`` is the mean of the
    columns of a head of keys and of values.
    """

    query_rank: int
    rank: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes of one layer.

    ``inner`` are the columns of the gate, and as many of the up-projection, of the dense MLP. ``experts`` is 0 without
    a mixture of experts; ``expert_inner`` are the columns of one expert, ``experts_per_token`` how many a token goes
    to, which lie in ``groups_per_token`` groups of them, as nodes are, 0 for any. ``shared_inner`` are the columns of
    an expert that all go to. ``latent`` is there where attention compresses keys and values. Without ``gated`` the MLP
    has no gate. ``left_out`` are parts of such models that no workload is written for.
    """

    name: str
    dtype: DType
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    layers: int
    experts: int = 0
    experts_per_token: int = 0
    expert_inner: int = 0
    groups_per_token: int = 0
    shared_inner: int = 0
    latent: Latent | None = None
    gated: bool = True
    left_out: tuple[str, ...] = ()


def read_config(path: Path) -> ModelConfig:
    """Read the configuration of a model.

    Raises
    ------
    CompileError
        If the file cannot be read, is no JSON object, or lacks a size.
    """
    report, span = Report(), Span(Source(str(path), ""), 0, 0)
    with report.trial():
        source = read_source(path, report, span)
        document = read_json(source.text, JsonPlace(path.name, span, report, Code.MGS138))
        return config_of(document, path)
    raise CompileError(report.diagnostics)


def config_of(document: Item, path: Path) -> ModelConfig:
    """Return the sizes in a document, of a model that is called as it says, or else as its file."""
    members = document.members()
    if "text_config" in members and "hidden_size" not in members:
        # A model of text and pictures: what its part for text does not say holds for all of it.
        members = members | {
            key: item for key, item in members["text_config"].members().items() if item.value is not None
        }
    numbers = _Numbers(document, members)
    hidden, heads = numbers.needed("hidden_size", MAX_WIDTH), numbers.needed("num_attention_heads", MAX_WIDTH)
    experts = numbers.first(_EXPERTS, MAX_EXPERTS)
    return ModelConfig(
        name=_name(members, path),
        dtype=_dtype(members),
        hidden=hidden,
        inner=numbers.needed("intermediate_size", MAX_WIDTH),
        heads=heads,
        kv_heads=numbers.first(("num_key_value_heads",), MAX_WIDTH) or heads,
        head_dim=numbers.first(("head_dim",), MAX_WIDTH) or max(1, hidden // heads),
        layers=numbers.needed("num_hidden_layers", MAX_WIDTH),
        experts=experts,
        experts_per_token=numbers.needed("num_experts_per_tok", MAX_EXPERTS) if experts else 0,
        expert_inner=numbers.first(_EXPERT_WIDTHS, MAX_WIDTH) if experts else 0,
        groups_per_token=numbers.first(("topk_group",), MAX_EXPERTS) if experts else 0,
        shared_inner=_shared(numbers) if experts else 0,
        latent=_latent(numbers),
        gated=_word(members, "model_type") not in _WITHOUT_GATE,
        left_out=tuple(what for key, what in _LEFT_OUT if key in members and members[key].value),
    )


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The whole numbers of a configuration; null is none."""

    document: Item
    members: dict[str, Item]

    def needed(self, key: str, most: int) -> int:
        if key not in self.members:
            hint = "a config.json of transformers has it; other forms are not read"
            raise self.document.fail(f"'{key}' is missing", hint)
        return self.members[key].number(1, most)

    def usual(self, key: str, usual: int) -> int:
        """Return a number, ``usual`` if nothing is said of it, 0 for null."""
        return self.first((key,), MAX_WIDTH) if key in self.members else usual

    def first(self, keys: tuple[str, ...], most: int) -> int:
        """Return the first of ``keys`` that has a number, 0 without one."""
        found = (self.members[key] for key in keys if key in self.members and self.members[key].value is not None)
        item = next(found, None)
        return 0 if item is None else item.number(0, most)


def _shared(numbers: _Numbers) -> int:
    """Columns of the experts that all tokens go to: their sum, or several as wide as the others."""
    count, width = numbers.first(("n_shared_experts",), MAX_EXPERTS), numbers.first(_EXPERT_WIDTHS, MAX_WIDTH)
    return numbers.first(("shared_expert_intermediate_size",), MAX_WIDTH) or count * width


def _latent(numbers: _Numbers) -> Latent | None:
    """What a configuration does not say is as in transformers' DeepseekV3Config."""
    rank = numbers.first(("kv_lora_rank",), MAX_WIDTH)
    if not rank:
        return None
    nope, rope, value = (numbers.usual(key, usual) for key, usual in _LATENT_HEADS)
    return Latent(numbers.usual("q_lora_rank", 1536), rank, (nope + rope + value) // 2)


def _name(members: dict[str, Item], path: Path) -> str:
    """The name in the file, else that of the file, or of the folder of a ``config.json``."""
    given = members["_name_or_path"].text() if "_name_or_path" in members else ""
    usual = path.parent.resolve().name if path.stem == "config" else path.stem
    return given.rpartition("/")[2] or usual or "model"


def _word(members: dict[str, Item], key: str) -> str:
    return members[key].text() if key in members and members[key].value is not None else ""


def _dtype(members: dict[str, Item]) -> DType:
    for key in ("torch_dtype", "dtype"):
        word = _word(members, key).removeprefix("torch.")
        if word in _DTYPES:
            return _DTYPES[word]
        if word:
            return _DTYPES[members[key].word(tuple(_DTYPES))]  # says which words there are
    return DType.BF16
