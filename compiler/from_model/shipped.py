"""Models that ship, by name: shapes of their layers."""

import tomllib
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from ..codes import Code
from ..request.request import RequestError
from .config import ModelConfig
from .request import model_of


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("models.toml").read_text(encoding="utf-8"))


def model_names() -> tuple[str, ...]:
    """The models that ship."""
    return tuple(_table()["models"])


def stated_parameters(name: str) -> float:
    """The parameters that the card of a shipped model states."""
    return float(_table()["models"][name]["billions"]) * 1e9


def shipped_model(name: str) -> ModelConfig:
    """Return the sizes of a model that ships.

    Raises
    ------
    RequestError
        If there is none of that name.
    """
    table = _table()
    shape = table["models"].get(name.lower())
    if shape is None:
        near = get_close_matches(name.lower(), model_names(), 3, 0.4)
        hint = f"nearest are {', '.join(near)}" if near else "for instance llama-3.1-70b, qwen3-235b, deepseek-v3"
        raise RequestError(Code.MGS203, "model", f"'{name[:60]}' is no model that ships", f"{hint}; or a config.json")
    config = {key: value for key, value in shape.items() if key != "billions"}
    return replace(model_of(table["defaults"] | config), name=name.lower())
