"""The sizes of a language model, read from a ``config.json`` in the form of Hugging Face's transformers."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ..codes import Code
from ..ir import DType
from ..text.diagnostics import Source, Span, raising_errors
from ..text.json_forms import Item, JsonPlace, read_json
from ..text.load import read_source
from .kinds import Sizes, layer_kinds

_FP8 = frozenset({"fp8", "fbgemm_fp8"})
_BITS = ("bits", "w_bit", "num_bits")
_NAMED_BITS = {"mxfp4": 4, "nvfp4": 4, "awq": 4, "gptq": 4, "w4a16": 4, "int4": 4, "int8": 8, "bitnet": 2}


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """The type in which a file has those of experts, if the language has it, and what is not written of that."""

    dtype: DType | None = None
    notes: tuple[str, ...] = ()


def stored_weights(item: Item | None, *, has_experts: bool) -> StoredWeights:
    """Read a ``quantization_config``, of transformers, compressed-tensors or ModelOpt."""
    if item is None:
        return StoredWeights()
    members = item.members()
    method = _word(members, "quant_method").lower()
    kind, bits = _compressed(members) if "config_groups" in members else ("", _number(members))
    named = f"{method} {_word(members, 'quant_algo')} {kind}".lower()
    if method in _FP8 or "fp8" in named or (kind.startswith("float") and bits == 8):
        if has_experts:
            others = "other weights that the file has as fp8: only those of experts are fp8 here"
            return StoredWeights(DType.FP8, (others,))
        return StoredWeights(notes=("fp8: the file has weights of it, here all are of the type of activations",))
    if method == DType.MXFP4.value and has_experts:
        return StoredWeights(DType.MXFP4)
    bits = bits or next((number for word, number in _NAMED_BITS.items() if word in named), 0)
    size = f"weights of {bits} bits" if bits else "quantized weights"
    return StoredWeights(notes=(f"{size} ({method[:32] or 'quantized'}): here they have the type of activations",))


def _compressed(members: dict[str, Item]) -> tuple[str, int]:
    """(type, bits) of the weights of the first group that says them."""
    for group in members["config_groups"].members().values():
        weights = group.members().get("weights")
        if weights is not None and isinstance(weights.value, dict):
            return _word(weights.members(), "type"), _number(weights.members())
    return "", 0


def _number(members: dict[str, Item]) -> int:
    found = next((members[key] for key in _BITS if key in members and members[key].value is not None), None)
    if found is None:
        flags = (bits for bits in (4, 8) if f"load_in_{bits}bit" in members and members[f"load_in_{bits}bit"].value)
        return next(flags, 0)
    return found.number(1, 64)


def _word(members: dict[str, Item], key: str) -> str:
    item = members.get(key)
    return item.text() if item is not None and isinstance(item.value, str) else ""


_DTYPES = {"bfloat16": DType.BF16, "float16": DType.FP16, "float8_e4m3fn": DType.FP8, "float32": DType.FP32}
_STORED = ("int8", "uint8", "int4", "float8_e5m2", "float64")
"""Types that a file may name, and in which nothing is computed here."""
_WRITTEN = "written are layers that have attention, then an MLP or experts"
_PARTS_FOR_TEXT = ("thinker_config", "text_config", "llm_config", "language_config")
_LEFT_OUT = (
    ("vision_config", "the part for pictures"),
    ("audio_config", "the part for sound"),
    ("num_nextn_predict_layers", "layers that predict further tokens"),
)


@dataclass(frozen=True, slots=True)
class Latent:
    """Attention that compresses keys and values to ``rank`` columns (DeepSeek-V2, arXiv 2405.04434).

    Queries are compressed to ``query_rank`` columns, not at all where that is 0. A head of queries and keys has
    ``nope + rope`` columns, of which the latter turn with the position; one of values has ``value``.
    """

    query_rank: int
    rank: int
    nope: int
    rope: int
    value: int

    @property
    def key(self) -> int:
        """The columns of a head of queries and of keys."""
        return self.nope + self.rope


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes of the layers of a model.

    ``inner`` are the columns of the gate, and as many of the up-projection, of the dense MLP. ``dense_layers`` have it,
    ``expert_layers`` have experts; of all ``layers`` the others have no attention, and are left out. ``experts`` is 0
    without a mixture of experts; ``expert_inner`` are the columns of one expert, ``experts_per_token`` how many a token
    goes to, which lie in ``groups_per_token`` groups of them, as nodes are, 0 for any. ``shared_inner`` are the columns
    of an expert that all go to. ``latent`` is there where attention compresses keys and values, ``window`` where all
    layers attend to so many tokens. Without ``gated`` the MLP has no gate; with ``parallel`` it takes what attention
    takes, and not what that leaves. Weights of experts have the type ``stored``, that of the others if None; those of
    fp8 are multiplied in fp8. ``parameters`` are those of the whole model, or of the layers that are written where
    others are left out; ``vocabulary`` are its tokens, 0 where the file does not say. ``left_out`` are parts of such
    models that no workload is written for, ``doubts`` what the file does not say.
    """

    name: str
    dtype: DType
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    layers: int
    dense_layers: int
    expert_layers: int = 0
    experts: int = 0
    experts_per_token: int = 0
    expert_inner: int = 0
    groups_per_token: int = 0
    shared_inner: int = 0
    latent: Latent | None = None
    window: int | None = None
    gated: bool = True
    parallel: bool = False
    stored: DType | None = None
    parameters: int = 0
    vocabulary: int = 0
    left_out: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def sent(self) -> DType:
        """The type in which tokens go to experts, and are multiplied there."""
        return DType.FP8 if self.stored is DType.FP8 else self.dtype


def read_config(path: Path) -> ModelConfig:
    """Read the configuration of a model.

    Raises
    ------
    CompileError
        If the file cannot be read, is no JSON object, or lacks a size.
    """
    span = Span(Source(str(path), ""), 0, 0)
    with raising_errors() as report:
        source = read_source(path, report, span)
        document = read_json(source.text, JsonPlace(path.name, span, report, Code.MGS138))
        return config_of(document, path)


def config_of(document: Item, path: Path) -> ModelConfig:
    """Return the sizes in a document, of a model that is called as it says, or else as its file."""
    members = _text_members(document)
    sizes = Sizes(document, members)
    _check_class(sizes)
    hidden, heads, layers = (sizes.needed(name) for name in ("hidden", "heads", "layers"))
    experts = _experts(sizes)
    kinds = layer_kinds(sizes, layers, has_experts=bool(experts))
    weights = stored_weights(sizes.item("quantization_config"), has_experts=bool(kinds.experts))
    found = ModelConfig(
        name=_name(members, path),
        dtype=_dtype(sizes),
        hidden=hidden,
        inner=_inner(sizes, hidden, needed=bool(kinds.dense)),
        heads=heads,
        kv_heads=_kv_heads(sizes, heads),
        head_dim=_head_dim(sizes, hidden, heads),
        layers=layers,
        dense_layers=kinds.dense,
        expert_layers=kinds.experts,
        latent=_latent(sizes, hidden // heads),
        window=kinds.window,
        gated=_gated(sizes),
        parallel=sizes.flag("parallel"),
        stored=weights.dtype,
    )
    found = _with_experts(found, experts, sizes) if kinds.experts else found
    return replace(
        found,
        parameters=_num_parameters(found, sizes),
        vocabulary=sizes.number("vocab"),
        left_out=(*kinds.notes, *weights.notes, *_left_out(sizes)),
        doubts=tuple(_doubts(sizes, found)),
    )


def _with_experts(model: ModelConfig, experts: int, sizes: Sizes) -> ModelConfig:
    return replace(
        model,
        experts=experts,
        experts_per_token=sizes.needed("top"),
        expert_inner=sizes.number("expert_inner") or sizes.needed("inner"),
        groups_per_token=sizes.number("groups"),
        shared_inner=_shared(sizes),
    )


def _left_out(sizes: Sizes) -> Iterator[str]:
    """Parts beside those that all models have."""
    if sizes.flag("query_gate"):
        yield "the gate of what attention leaves, as wide as the queries"
    for key, what in _LEFT_OUT:
        item = sizes.item(key)
        if item is not None and item.value:
            yield what


def _text_members(document: Item) -> dict[str, Item]:
    """The members; those of the part for text where they are within the others, and what it does not say from these."""
    members = document.members()
    while "hidden_size" not in members:
        part = next((key for key in _PARTS_FOR_TEXT if key in members and isinstance(members[key].value, dict)), None)
        if part is None:
            break
        inner = {key: item for key, item in members[part].members().items() if item.value is not None}
        members = {key: item for key, item in members.items() if key != part} | inner
    return members


def _check_class(sizes: Sizes) -> None:
    """Refuse classes without such layers, and those whose layers are one block each, in Nemotron-H ``M-M*-E``."""
    why_not = sizes.refusal()
    if why_not:
        message = f"no layer of '{sizes.model_type or 'it'}' is written: {why_not}"
        raise sizes.document.fail(message, _WRITTEN, Code.MGS350)
    item = sizes.item("hybrid_override_pattern")
    if item is not None:
        blocks = Counter(item.any_text())
        names = {"M": "Mamba", "*": "attention", "-": "an MLP", "E": "experts"}
        each = ", ".join(f"{blocks[sign]} are {name}" for sign, name in names.items() if blocks[sign])
        message = f"a hybrid whose layers are one block each ({each}): none has attention and an MLP"
        raise item.fail(message, _WRITTEN, Code.MGS350)
    for key in ("block_configs", "nested_layers"):
        if (item := sizes.item(key)) is not None:
            raise item.fail("layers differ from each other: no layer stands for all", code=Code.MGS350)


def _experts(sizes: Sizes) -> int:
    """How many experts a layer has; 0 for one, which is an MLP."""
    found = sizes.number("experts")
    hints = sizes.keys_like("expert", "moe_") if sizes.item("experts") is None and not found else []
    if hints:
        message = f"how many experts there are is not known here: {', '.join(hints)[:200]} speak of some"
        raise sizes.document.fail(
            message, "the number is looked for as n_routed_experts, num_local_experts, num_experts"
        )
    return found if found > 1 else 0


def _inner(sizes: Sizes, hidden: int, *, needed: bool) -> int:
    """Columns of the dense MLP; 0 where no layer has one and the file does not say it."""
    found = sizes.number("dense_inner") or sizes.number("inner")
    found = found or sizes.number("expansion_ratio") * hidden
    factor = sizes.of_class("inner_factor")
    if not found and factor:
        found = sizes.assumed["intermediate_size"] = factor * hidden
    if not found and needed:
        return sizes.needed("inner")
    return found // 2 if sizes.of_class("halves") else found


def _head_dim(sizes: Sizes, hidden: int, heads: int) -> int:
    """Columns of a head; of latent attention, whose heads have other sizes, any number where the file has none."""
    found = sizes.number("head_dim")
    if not found and hidden % heads and not sizes.number("kv_lora_rank"):
        raise sizes.document.fail(f"hidden_size {hidden} does not divide among {heads} heads", "say head_dim")
    return found or max(1, hidden // heads)


def _kv_heads(sizes: Sizes, heads: int) -> int:
    """One for all with multi-query attention, which Falcon's new architecture has in groups."""
    if sizes.flag("multi_query") and not sizes.flag("new_decoder_architecture"):
        return 1
    found = sizes.number("kv_heads") or heads
    if heads % found and not sizes.number("kv_lora_rank"):
        raise sizes.document.fail(f"{heads} heads are no multiple of {found} for keys and values")
    return found


def _gated(sizes: Sizes) -> bool:
    """As the class has it; of others by the activation, which without a gate is none of the sigmoid."""
    if sizes.of_class("gate") is not None or sizes.known:
        return sizes.of_class("gate") is not False
    return sizes.word("activation") in ("", "silu", "swish", "swiglu", "geglu", "gegelu", "glu")


def _shared(sizes: Sizes) -> int:
    """Columns of the experts that all tokens go to: their sum, or several as wide as the others."""
    each = sizes.number("shared_each") or sizes.number("expert_inner") or sizes.number("inner")
    count = sizes.number("shared") or (sizes.of_class("shared_always") or 0)
    return sizes.number("shared_inner") or count * each


def _latent(sizes: Sizes, head_dim: int) -> Latent | None:
    rank = sizes.number("kv_lora_rank")
    if not rank:
        return None
    nope, rope = sizes.number("qk_nope_head_dim"), sizes.number("qk_rope_head_dim")
    return Latent(sizes.number("q_lora_rank"), rank, nope, rope, sizes.number("v_head_dim") or head_dim)


def _num_parameters(model: ModelConfig, sizes: Sizes) -> int:
    """Parameters of the layers that are written, and of the embeddings that the file says; without biases."""
    attention = model.hidden * model.head_dim * 2 * (model.heads + model.kv_heads)
    if model.latent is not None:
        latent, query_head = model.latent, model.latent.key
        down, up = model.hidden * latent.query_rank, latent.query_rank or model.hidden
        attention = down + up * model.heads * query_head + model.hidden * (latent.rank + latent.rope)
        attention += model.heads * (latent.rank * (latent.nope + latent.value) + latent.value * model.hidden)
    if sizes.flag("query_gate"):
        attention += model.hidden * model.heads * model.head_dim
    matrices = 3 if model.gated else 2
    each = attention + 2 * model.hidden  # with two norms
    dense = matrices * model.hidden * model.inner
    columns = model.experts * model.expert_inner + model.shared_inner
    experts = model.hidden * (matrices * columns + model.experts)  # with the router
    tokens = sizes.number("vocab") * (1 if sizes.flag("tied") else 2)
    positions = sizes.number("positions") if sizes.of_class("positions") else 0
    layers = model.dense_layers * (each + dense) + model.expert_layers * (each + experts)
    return layers + model.hidden * (tokens + positions + 1)


def _doubts(sizes: Sizes, model: ModelConfig) -> Iterator[str]:
    if sizes.assumed:
        usual = ", ".join(f"{key} {number}" for key, number in sizes.assumed.items())
        yield f"not in the file, taken from the class '{sizes.model_type}' of transformers: {usual}"
    if not sizes.number("vocab"):
        yield "the file does not say vocab_size: parameters are those without embeddings"
    if not sizes.known:
        said = f"the class '{sizes.model_type}' is not known" if sizes.model_type else "the file has no model_type"
        yield f"{said}: it is taken to be built like Llama, its MLP with {'a' if model.gated else 'no'} gate"


def _name(members: dict[str, Item], path: Path) -> str:
    """The name in the file, else that of the file, or of the folder of a ``config.json``."""
    given = members["_name_or_path"].text() if "_name_or_path" in members else ""
    usual = path.parent.resolve().name if path.stem == "config" else path.stem
    return given.rpartition("/")[2] or usual or "model"


def _dtype(sizes: Sizes) -> DType:
    for key in ("torch_dtype", "dtype"):
        item = sizes.item(key)
        if item is None:
            continue
        word = item.text().removeprefix("torch.")
        if word in _STORED:
            hint = "say the type of its activations, such as bfloat16: quantized weights are left out"
            raise item.fail(f"{word} is no type that products are simulated in", hint, Code.MGS351)
        return _DTYPES[word] if word in _DTYPES else _DTYPES[item.word(tuple(_DTYPES))]  # says which words there are
    return DType.BF16
