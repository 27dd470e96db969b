"""The numbers of a configuration by one name each, whatever its class calls them, with the defaults of the class."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from ..codes import Code
from ..text.diagnostics import Stopped
from ..text.json_items import Item

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
