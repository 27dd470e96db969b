"""Of which kinds the layers of a model are: whether each has attention, and whether its MLP is one of experts."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice

from ..codes import Code
from ..text.json_items import Item
from .sizes import MAX_MODEL_LAYERS, Sizes

_ALL, _WINDOW, _CHUNK = "all tokens", "a window", "a chunk"
_ATTENDING = (_ALL, _WINDOW, _CHUNK)
_MIXERS = {
    "full_attention": _ALL,
    "attention": _ALL,
    "global": _ALL,
    "sliding_attention": _WINDOW,
    "local": _WINDOW,
    "chunked_attention": _CHUNK,
}
"""What tokens attend to, by the words of ``layer_types``; other words are mixers that are no attention."""
_NO_ATTENTION = ("mamba_", "ssm_", "linear_num", "rwkv", "conv_kernel", "conv_L")
"""Parts of keys of mixers that are no attention."""
_SPARSE = frozenset({"sparse", "moe"})
LONGEST = 65536
"""Tokens of the longest sequence that is written: a longer window hides nothing."""


@dataclass(frozen=True, slots=True)
class LayerKinds:
    """How many layers with attention have an MLP (``dense``), how many ``experts``; ``notes`` say what is left out."""

    dense: int
    experts: int
    notes: tuple[str, ...]


def layer_kinds(sizes: Sizes, layers: int, *, has_experts: bool) -> LayerKinds:
    """Return how many layers there are of each kind.

    Raises
    ------
    Stopped
        If no layer has attention and an MLP.
    """
    mixers = _mixers(sizes, layers)
    sparse = tuple(_sparse(sizes, layers)) if has_experts else (False,) * layers
    attending = [moe for mixer, moe in zip(mixers, sparse, strict=True) if mixer in _ATTENDING]
    if not attending:
        item = sizes.item("layer_types")
        message = f"no layer has attention: all have {', '.join(sorted(set(mixers)))[:200]}"
        raise (item or sizes.document).fail(message, code=Code.MGS350)
    kinds = Counter(zip(mixers, sparse, strict=True))
    return LayerKinds(len(attending) - sum(attending), sum(attending), tuple(_notes(sizes, kinds, layers)))


def _notes(sizes: Sizes, kinds: Counter[tuple[str, bool]], layers: int) -> Iterator[str]:
    """What no workload says of the layers."""
    mixers = Counter({mixer: sum(kinds[mixer, moe] for moe in (False, True)) for mixer, _ in kinds})
    others = {mixer: count for mixer, count in mixers.items() if mixer not in _ATTENDING}
    for mixer, count in others.items():
        experts = kinds[mixer, True]
        which = f" ({experts} with experts)" if 0 < experts < count else " (with experts)" if experts else ""
        yield f"{count} of {layers} layers{which}, which have {mixer} in place of attention"
    if mixers[_WINDOW]:
        back = sizes.number("window")
        yield f"windows: {mixers[_WINDOW]} of {layers} layers attend to the last {back} tokens alone, here to all"
    if mixers[_CHUNK]:
        chunk = sizes.number("chunk")
        yield f"chunks: in {mixers[_CHUNK]} of {layers} layers tokens attend within {chunk} of them, here to all"
    if sizes.number("index_topk"):
        yield f"sparse attention: a token attends to {sizes.number('index_topk')} that an indexer picks, here to all"


def _mixers(sizes: Sizes, layers: int) -> tuple[str, ...]:
    """What mixes the tokens of each layer."""
    listed = sizes.item("layer_types")
    if listed is not None:
        words = [each.text() for each in listed.items(MAX_MODEL_LAYERS, 1)]
        mixers = tuple(_MIXERS.get(word, word.replace("_", " ")[:40]) for word in islice(cycle(words), layers))
    else:
        other, attends = _attends(sizes, layers)
        hints = sizes.keys_like(*_NO_ATTENTION)
        if hints and not attends:
            message = f"which layers have attention is not known here: {', '.join(hints)[:200]} speak of others"
            raise sizes.document.fail(message, code=Code.MGS350)
        mixers = tuple(_windows(sizes, [_ALL if each else other for each in attends or [True] * layers]))
    crossing = _indices(sizes.item("cross_attention_layers"))
    long = _WINDOW in mixers and sizes.number("window") >= LONGEST  # hides nothing
    mixers = tuple(_ALL if long and mixer == _WINDOW else mixer for mixer in mixers)
    return tuple("attention to pictures" if at in crossing else mixer for at, mixer in enumerate(mixers))


def _attends(sizes: Sizes, layers: int) -> tuple[str, list[bool]]:
    """What mixes tokens where attention does not, and which layers have attention; none are said to be all."""
    every, numbers = sizes.number("full_interval"), range(layers)
    if every:
        return "linear attention", [(at + 1) % every == 0 for at in numbers]
    if period := sizes.number("attn_layer_period"):
        offset = sizes.number("attn_layer_offset")
        return "Mamba", [at % period == offset for at in numbers]
    if (item := sizes.item("attn_type_list")) is not None:
        flags = [each.number(0, 1) for each in item.items(layers, layers)]
        return "lightning attention", [flag == 1 for flag in flags]
    if (item := sizes.item("linear_attn_config.full_attn_layers")) is not None:
        full = _indices(item)
        return "linear attention", [at + 1 in full for at in numbers]
    for key in ("attn_layer_indices", "full_attn_idxs"):
        if (item := sizes.item(key)) is not None:
            full = _indices(item)
            return "a state space or a convolution", [at in full for at in numbers]
    return "", []


def _windows(sizes: Sizes, mixers: list[str]) -> Iterator[str]:
    """Attention of which every n-th layer sees all tokens, and those before it a window or a chunk."""
    chunks = sizes.of_class("chunk_pattern") if sizes.number("chunk") else None
    said = sizes.item("use_window") is not None or sizes.of_class("use_window") is not None
    windows = sizes.number("window") if sizes.flag("use_window") or not said else 0
    near = _CHUNK if chunks else _WINDOW if windows else _ALL
    every = chunks or (_pattern(sizes) if windows else 0)
    first = sizes.number("max_window_layers") if windows else 0
    for at, mixer in enumerate(mixers):
        yield near if mixer == _ALL and at >= first and (not every or (at + 1) % every) else mixer


def _pattern(sizes: Sizes) -> int:
    """Every which layer sees all tokens; 0 where none does. EXAONE 4 writes it as ``LLLG``."""
    item = sizes.item("window_pattern")
    return len(item.text()) if item is not None and isinstance(item.value, str) else sizes.number("window_pattern")


def _sparse(sizes: Sizes, layers: int) -> Iterator[bool]:
    """Whether each layer has experts: the rules of the classes, those of which a file says nothing change nothing."""
    listed = next((item for key in ("mlp_layer_types", "moe_layer_freq") if _is_list(item := sizes.item(key))), None)
    if listed is not None:
        words = listed.items(layers, layers)
        yield from (each.value in _SPARSE or each.value == 1 for each in words)
        return
    first, step = sizes.number("first_dense"), max(1, sizes.number("sparse_step"))
    item = sizes.item("moe_layer_end_index")
    last = layers - 1 if item is None or item.value == -1 else item.number(0, MAX_MODEL_LAYERS)
    frequency = max(1, sizes.number("moe_layer_freq"))
    period, offset = max(1, sizes.number("expert_layer_period")), sizes.number("expert_layer_offset")
    dense, sparse = _indices(sizes.item("mlp_only_layers")), _indices(sizes.item("moe_layers"))
    for at in range(layers):
        if sparse:
            yield at in sparse
            continue
        yield (
            first <= at <= last
            and (at + 1) % step == 0
            and at % frequency == 0
            and at % period == offset
            and at not in dense
        )


def _is_list(item: Item | None) -> bool:
    return item is not None and isinstance(item.value, list)


def _indices(item: Item | None) -> frozenset[int]:
    found = () if item is None else item.items(MAX_MODEL_LAYERS)
    return frozenset(each.number(0, MAX_MODEL_LAYERS) for each in found)
