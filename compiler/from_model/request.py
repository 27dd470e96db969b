"""The question of a program about a layer: a model, which may ship, how it is sharded, how many tokens. No text."""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..codes import Code
from ..ir import Scenario
from ..request.request import ENGINE, MAX_BYTES, RequestError, check_gpu, names_in, whole
from ..text.diagnostics import CompileError, Source, Span, raising_errors
from ..text.json_forms import MAX_FILE_BYTES, JsonPlace, read_json
from ..text.vocabulary import MAX_EXTENT, MAX_RANKS
from .config import ModelConfig, config_of, read_config
from .frameworks import Experts, Parallelism
from .layer import compiled, unchecked_layer_text
from .whole_layer import BACK, LAYER

MAX_KEPT = 256
_NAME = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)
_NUMBERS = (
    ("tp", 2, MAX_RANKS),
    ("node", 1, MAX_RANKS),
    ("tokens", 1, MAX_EXTENT),
    ("decode", 1, MAX_EXTENT),
    ("staging_bytes", 0, MAX_BYTES),
)
_OPTIONAL = ("decode", "staging_bytes")


@dataclass(frozen=True, slots=True)
class LayerRequest:
    """Which schedule for a layer of this model, on these GPUs, with so many tokens? Checked when it is made.

    Attributes
    ----------
    model
        What ``model_of`` returns for the ``config.json`` of a model of transformers.
    gpu
        A GPU that ships, ``H100``, or the name that its driver gives it.
    tp
        Number of GPUs that share the layer, by tensor parallelism; experts are dealt to them.
    tokens
        Rows of activations that all ranks hold together, in one sequence.
    backward
        Whether the question is about the backward pass, with weight gradients.
    node
        GPUs of one node; more than these are on several, joined by a network.
    sequence_parallel
        Whether activations are held by rows, gathered and reduce-scattered, or whole and all-reduced.
    decode
        Keys of each sequence in a step of decode, whose ``tokens`` are one of each; None outside of decode.
    engines
        Who may copy: ``dma(7)``, ``sm(16)``; none leaves it to the search.
    staging_bytes
        Limit of the extra memory of a rank; None is no limit.
    implementations
        Those to compare with; none are all that are known for the GPU.

    Raises
    ------
    RequestError
        If a value is not one of these.
    """

    model: ModelConfig
    gpu: str
    tp: int
    tokens: int
    backward: bool = False
    sequence_parallel: bool = True
    decode: int | None = None
    node: int = 8
    engines: tuple[str, ...] = ()
    staging_bytes: int | None = None
    implementations: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.model, ModelConfig):
            hint = "model_of(config) reads a config.json"
            raise RequestError(Code.MGS310, "model", "it is no configuration of a model", hint)
        check_gpu(self.gpu)
        for field, least, most in _NUMBERS:
            if getattr(self, field) is not None or field not in _OPTIONAL:
                object.__setattr__(self, field, whole(field, getattr(self, field), least, most))
        for field in ("backward", "sequence_parallel"):
            if not isinstance(getattr(self, field), bool):
                raise RequestError(Code.MGS310, field, f"{getattr(self, field)!r:.40} is neither true nor false")
        if self.decode is not None and self.backward:
            raise RequestError(Code.MGS206, "decode", "a step of decode has no backward pass", "leave one of them out")
        for field, form in (("engines", ENGINE), ("implementations", _NAME)):
            object.__setattr__(self, field, names_in(field, getattr(self, field), form))

    @property
    def workload(self) -> str:
        """The name of the workload."""
        return BACK if self.backward else LAYER


def model_of(config: Mapping[str, object] | str | os.PathLike[str], name: str = "model") -> ModelConfig:
    """Return the sizes of the model ``name`` in ``config``: the path of a ``config.json``, or its content.

    Raises
    ------
    RequestError
        If it cannot be read, or lacks a size.
    """
    try:
        if isinstance(config, Mapping):
            return _in_memory(config, name)
        if not isinstance(config, str | os.PathLike):
            raise RequestError(Code.MGS310, "model", "it is neither an object nor the path of a config.json")
        return read_config(Path(config))
    except CompileError as error:
        raise RequestError(Code.MGS138, "model", error.first.message) from None


def _in_memory(config: Mapping[str, object], name: str) -> ModelConfig:
    try:
        text = json.dumps(dict(config))
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(Code.MGS138, "model", f"no JSON: {error}"[:200]) from None
    if len(text) > MAX_FILE_BYTES:
        raise RequestError(Code.MGS130, "model", "it is too large for a configuration")
    with raising_errors() as report:
        place = JsonPlace("config", Span(Source("config", ""), 0, 0), report, Code.MGS138)
        return config_of(read_json(text, place), Path(name))


@lru_cache(MAX_KEPT)
def layer_scenario(request: LayerRequest) -> Scenario:
    """Return the scenario of ``request``.

    Raises
    ------
    RequestError
        If the GPU does not ship, the layer does not divide among the ranks, or nothing goes back through it.
    """
    parallel = Parallelism(request.gpu, request.tp, request.sequence_parallel, request.node, keys=request.decode)
    if request.backward and request.model.expert_layers and parallel.sharing is not Experts.SENT:
        message = "nothing goes back through experts of rows that all ranks hold"
        raise RequestError(Code.MGS520, "backward", message, "take sequence_parallel=True")
    text = unchecked_layer_text(request.model, parallel, str(request.tokens))
    uses = "".join(f'use "implementations/{name}"\n' for name in request.implementations)
    text = text.replace("\nuse ", f"\n{uses}use ", 1) + _explore(request)
    return compiled(text, "<request>").scenario(request.workload)


def _explore(request: LayerRequest) -> str:
    said = [f"engine {', '.join(request.engines)}"] if request.engines else []
    said += [f"implementations {', '.join(request.implementations)}"] if request.implementations else []
    said += [f"staging <= {request.staging_bytes} B"] if request.staging_bytes is not None else []
    return f"\nexplore {request.workload} {{ {'; '.join(said)} }}\n" if said else ""


@cache
def _shipped() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("models.toml").read_text(encoding="utf-8"))


def model_names() -> tuple[str, ...]:
    """The models that ship."""
    return tuple(_shipped()["models"])


def stated_parameters(name: str) -> float:
    """The parameters that the card of a shipped model states."""
    return float(_shipped()["models"][name]["billions"]) * 1e9


# What publishers add to the name of a shape: kinds of training, dates and versions.
_ENDING = re.compile(r"-(?:instruct|chat|base|it|hf|thinking|original|v0\.\d|\d{4})$")


def _shape_name(name: str) -> str:
    """The name of a shape in what publishers call a model: ``meta-llama/Llama-3.3-70B-Instruct`` is llama-3.1-70b."""
    table = _shipped()
    bare = name.lower().rpartition("/")[2].removeprefix("meta-")
    while bare not in table["models"] and bare not in table["same"] and _ENDING.search(bare):
        bare = _ENDING.sub("", bare)
    return str(table["same"].get(bare, bare))


def shipped_model(name: str) -> ModelConfig:
    """Return the sizes of a model that ships.

    Parameters
    ----------
    name : str
        As in ``model_names()``, or as its publisher has it: ``Qwen/Qwen3-235B-A22B-Instruct-2507``.

    Raises
    ------
    RequestError
        If there is none of that name.
    """
    table, known = _shipped(), _shape_name(name)
    shape = table["models"].get(known)
    if shape is None:
        near = get_close_matches(known, model_names(), 3, 0.4)
        hint = f"nearest are {', '.join(near)}" if near else "for instance llama-3.1-70b, qwen3-235b, deepseek-v3"
        raise RequestError(Code.MGS203, "model", f"'{name[:60]}' is no model that ships", f"{hint}; or a config.json")
    config = {key: value for key, value in shape.items() if key != "billions"}
    return replace(model_of(table["defaults"] | config), name=known)
