"""Models and frameworks that ship, by name: shapes of layers, and what a framework runs and can switch on."""

import tomllib
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from ..codes import Code
from ..request.request import RequestError
from .config import ModelConfig
from .request import model_of


@dataclass(frozen=True, slots=True)
class FrameworkSwitch:
    """Something that a framework can switch on.

    ``offer`` is the implementation, or the schedule, whose gain is its own; with ``sequence`` activations are then held
    by rows. ``setting`` is what to write, ``costs`` what it takes besides. ``needs`` are words for when it can be had:
    ``tp``, ``dp``, ``ep`` above 1, ``train``, ``serve``.
    """

    offer: str
    what: str
    setting: str
    costs: str
    needs: tuple[str, ...]
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework: what it runs ``today``, the family of its small all_reduce kernels, and what it can switch on."""

    name: str
    title: str
    version: str
    source: str
    today: str
    today_with_dp: str
    all_reduce: str
    switches: tuple[FrameworkSwitch, ...]
    with_experts: str = ""

    def runs(self, *, dp: int, experts: int) -> str:
        """The collectives that stand in a layer today."""
        today = self.today_with_dp if dp > 1 else self.today
        return f"{today}, {self.with_experts}" if self.with_experts and experts and dp == 1 else today


@cache
def _table(name: str) -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath(name).read_text(encoding="utf-8"))


def model_names() -> tuple[str, ...]:
    """The models that ship."""
    return tuple(_table("models.toml")["models"])


def stated_parameters(name: str) -> float:
    """The parameters that the card of a shipped model states."""
    return float(_table("models.toml")["models"][name]["billions"]) * 1e9


def shipped_model(name: str) -> ModelConfig:
    """Return the sizes of a model that ships.

    Raises
    ------
    RequestError
        If there is none of that name.
    """
    table = _table("models.toml")
    shape = table["models"].get(name.lower())
    if shape is None:
        near = get_close_matches(name.lower(), model_names(), 3, 0.4)
        hint = f"nearest are {', '.join(near)}" if near else "for instance llama-3.1-70b, qwen3-235b, deepseek-v3"
        raise RequestError(Code.MGS203, "model", f"'{name[:60]}' is no model that ships", f"{hint}; or a config.json")
    config = {key: value for key, value in shape.items() if key != "billions"}
    return replace(model_of(table["defaults"] | config), name=name.lower())


@cache
def framework_named(name: str) -> Framework:
    """Return what is known of a framework.

    Raises
    ------
    RequestError
        If nothing is.
    """
    table = _table("frameworks.toml")
    if name not in table:
        near = get_close_matches(name, table, 1, 0.5)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(table)}"
        raise RequestError(Code.MGS203, "for", f"'{name[:40]}' is no framework that is known", hint)
    facts = table[name]
    switches = (FrameworkSwitch(**{**each, "needs": tuple(each["needs"])}) for each in facts["switches"])
    return Framework(name, **{**facts, "switches": tuple(switches)})
