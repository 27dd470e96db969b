"""Of which kinds the layers of a model are: whether each has attention, and whether its MLP is one of experts."""

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import cycle, islice
from typing import Any

from ..codes import Code
from ..text.diagnostics import Stopped
from ..text.json_forms import Item

MAX_WIDTH = 1 << 24
MAX_EXPERTS = 1 << 14
MAX_MODEL_LAYERS = 1 << 12
_MOST = {"experts": MAX_EXPERTS, "top": MAX_EXPERTS, "shared": MAX_EXPERTS, "layers": MAX_MODEL_LAYERS}
_LATENT = ("q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


class Sizes:
    """What ``members`` say, else what the class of ``model_type`` has; ``assumed`` are the numbers that the class gave.

    ``known`` is whether anything is known of the class. A number is asked for by its name in ``classes.toml``, or by
    its key where all classes call it alike.
    """

    def __init__(self, document: Item, members: dict[str, Item]) -> None:
        self.document, self._members = document, {**members, **_inner_members(members)}
        self.model_type = self.word("model_type")
        self._class = _class_of(self.model_type)
        self.known = self._class is not None or self.model_type in _table()["like_llama"]["classes"]
        self._usual: dict[str, int] = dict(self._class or {})
        if "kv_lora_rank" in members:  # as all that compress keys and values have it
            latent = _table()["classes"]["deepseek_v3"]
            self._usual = {key: latent[key] for key in _LATENT} | self._usual
        self.assumed: dict[str, int] = {}

    def refusal(self) -> str:
        """Why no layer of this class is written; empty where one is."""
        if self.flag("is_encoder_decoder") or self.model_type in _table()["encoder_decoders"]["classes"]:
            return "it has an encoder and a decoder, with attention between them"
        refused: Mapping[str, list[str]] = _table()["refused"]
        return next((why for why, classes in refused.items() if self.model_type in classes), "")

    def item(self, name: str) -> Item | None:
        """The value in the file; None where there is none or null."""
        return next((self._members[key] for key in self._keys(name) if self._members[key].value is not None), None)

    def keys_like(self, *parts: str) -> list[str]:
        """Keys of the file with a number above 1 that have one of ``parts`` in them."""
        numbers = (key for key, item in self._members.items() if isinstance(item.value, int) and item.value > 1)
        return [key for key in numbers if any(part in key for part in parts)]

    def word(self, name: str) -> str:
        """The word in the file, empty without one."""
        item = self.item(name)
        return "" if item is None else item.text()

    def flag(self, name: str) -> bool:
        """What the file says, else the class."""
        item = self.item(name)
        return bool(self._usual.get(name)) if item is None else item.flag()

    def number(self, name: str, least: int = 0) -> int:
        """A whole number from ``least`` on; 0 for null and where neither the file nor the class has one.

        Of a list, one for each layer, all are the same.
        """
        item, most = self.item(name), _MOST.get(name, MAX_WIDTH)
        if item is None:
            usual = 0 if self._keys(name) else self._usual.get(name, 0)
            if usual:
                self.assumed[_names(name)[0]] = usual
            return usual
        if not isinstance(item.value, list):
            return item.number(least, most)
        found = {each.number(least, most) for each in item.items(MAX_MODEL_LAYERS, 1)}
        if len(found) > 1:
            raise item.fail(f"layers differ ({min(found)} to {max(found)}): no layer stands for all", code=Code.MGS350)
        return found.pop()

    def needed(self, name: str) -> int:
        """A whole number from 1 on, which the file or the class has to have."""
        found = self.number(name, 1)
        if not found:
            raise self._missing(name)
        return found

    def of_class(self, name: str) -> int | None:
        """What the class does, whatever a file says, a number or a flag; None if nothing is known of it."""
        return self._usual.get(name)

    def _keys(self, name: str) -> list[str]:
        return [key for key in _names(name) if key in self._members]

    def _missing(self, name: str) -> Stopped:
        first, *others = _names(name)
        also = f", also called {', '.join(others)}" if others else ""
        if not self.model_type:
            hint = "'model_type' is missing too: with it the defaults of its class are taken"
        elif self._class is None:
            hint = f"no defaults of the class '{self.model_type[:64]}' are known"
        else:
            hint = f"the class '{self.model_type}' of transformers has no default for it"
        return self.document.fail(f"'{first}' is missing{also}", hint)


def _inner_members(members: dict[str, Item]) -> dict[str, Item]:
    """The members of objects within the configuration, as ``object.key``."""
    objects = ((key, item.members()) for key, item in members.items() if isinstance(item.value, dict))
    return {f"{key}.{inner}": item for key, found in objects for inner, item in found.items()}


def _names(name: str) -> list[str]:
    return list(_table()["names"].get(name, [name]))


def _class_of(model_type: str) -> Mapping[str, int] | None:
    """What is known of a class; of one of text and pictures that of its part for text."""
    classes = _table()["classes"]
    spellings = (model_type, f"{model_type}_text", model_type.removesuffix("_text"))
    return next((classes[each] for each in spellings if each in classes), None)


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files(__package__ or "").joinpath("classes.toml").read_text(encoding="utf-8"))


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
    """How many layers with attention have an MLP (``dense``), how many ``experts``; ``notes`` say what is left out.

    ``window`` are the last tokens that all of them attend to, None where some attend to all.
    """

    dense: int
    experts: int
    notes: tuple[str, ...]
    window: int | None = None


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
    window = sizes.number("window") if mixers.count(_WINDOW) == len(attending) else None
    notes = tuple(_notes(sizes, kinds, layers, window))
    return LayerKinds(len(attending) - sum(attending), sum(attending), notes, window)


def _notes(sizes: Sizes, kinds: Counter[tuple[str, bool]], layers: int, window: int | None) -> Iterator[str]:
    """What no workload says of the layers, of which all may have a ``window``."""
    mixers = Counter({mixer: sum(kinds[mixer, moe] for moe in (False, True)) for mixer, _ in kinds})
    others = {mixer: count for mixer, count in mixers.items() if mixer not in _ATTENDING}
    for mixer, count in others.items():
        experts = kinds[mixer, True]
        which = f" ({experts} with experts)" if 0 < experts < count else " (with experts)" if experts else ""
        yield f"{count} of {layers} layers{which}, which have {mixer} in place of attention"
    if mixers[_WINDOW] and window is None:
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
        yield from (each.value in _SPARSE or each.value == 1 for each in listed.items(layers, layers))
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
