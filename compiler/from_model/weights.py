"""In which type the file of a model has its weights."""

from dataclasses import dataclass

from ..text.json_items import Item

_FP8 = frozenset({"fp8", "fbgemm_fp8"})
_BITS = ("bits", "w_bit", "num_bits")
_NAMED_BITS = {"mxfp4": 4, "nvfp4": 4, "awq": 4, "gptq": 4, "w4a16": 4, "int4": 4, "int8": 8, "bitnet": 2}


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """Whether a file has them as fp8, and what is not written of that."""

    is_fp8: bool = False
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
            return StoredWeights(True, ("other weights that the file has as fp8: only those of experts are fp8 here",))
        return StoredWeights(True, ("fp8: the file has weights of it, here all are of the type of activations",))
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
