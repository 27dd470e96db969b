"""A training step of a model on many GPUs as ``.mgs`` text: its layers on groups, and the layouts to compare.

Layers without experts are shared by tensor parallelism; those with experts send rows to them, each rank with sequences
of its own, as Megatron-LM and DeepSeek-V3 train them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from ..codes import Code
from ..request.request import RequestError, shipped_gpu
from ..text.rewriting import comment_lines
from .config import ModelConfig
from .frameworks import Parallelism
from .layer import NIC, compiled, number_text
from .whole_layer import LAYER, whole_layer

STEP = "train"
"""The name of the workload that is a step."""

MOST_TP, MOST_STAGES, MOST_MICROBATCH = 8, 16, 4
"""The largest groups and microbatches that are compared."""

MOST_CP, LEAST_PART = 16, 16384
"""The most ranks that share a sequence, and the least tokens that each has of one."""

EP_SIZES = (64, 32, 16, 8)
"""GPUs that share experts, the first that divides them and the ranks."""


@dataclass(frozen=True, slots=True)
class StepRequest:
    """A step of ``sequences`` of ``length`` tokens on ``gpus`` GPUs, in nodes of ``node``.

    ``cp`` is how many ranks have parts of each sequence; None compares several where sequences are long.

    Raises
    ------
    RequestError
        If the GPUs do not fill nodes, or a number is not positive.
    """

    gpu: str
    gpus: int
    sequences: int
    length: int
    node: int = 8
    cp: int | None = None

    def __post_init__(self) -> None:
        for field, value in (("gpus", self.gpus), ("sequences", self.sequences), ("seq-len", self.length)):
            if value < 1:
                raise RequestError(Code.MGS307, field, f"{field} is 1 or more, not {value}")
        if self.gpus > self.node and self.gpus % self.node:
            message = f"{self.gpus} GPUs do not fill nodes of {self.node}"
            raise RequestError(Code.MGS304, "gpus", message, "take whole nodes")


def step_text(model: ModelConfig, request: StepRequest) -> str:
    """Return a file with a training step of ``model``, checked; ``explore`` has the layouts that divide.

    Raises
    ------
    RequestError
        If the GPU does not ship, or no layout divides the model.
    """
    gpu = shipped_gpu(request.gpu)
    fabric = gpu.rails(request.node, "nic") if request.gpus > request.node else gpu.fabric()
    batch = f"{request.sequences} sequences of {request.length}"
    about = f"{model.name}: {number_text(model.parameters)} parameters, {batch}"
    layout = _of_experts(model, request) if model.expert_layers > 0 else _of_heads(model, request)
    lines = [
        "mgs 1",
        "",
        *comment_lines(f"A training step of {about}."),
        "",
        f'use "{gpu.library}"',
        "",
        *layout.params,
        "",
        *(NIC if request.gpus > request.node else ()),
        f"system pod {{ gpus {request.gpus} x {gpu.name}; fabric {fabric}; {layout.mesh} }}",
        "",
        *_layers(model, request, layout),
        f"workload {STEP} on pod {{",
        f'  about "{model.name}"',
        *(f"  step {name}" for name in _names(model)),
        f"  sequences {request.sequences} x {request.length}",
        *((f"  head {model.vocabulary}",) if model.vocabulary else ()),
        "}",
        "",
        f"schedule usual for {STEP} {{ pipeline one_f_one_b; zero 1; overlap gradients, weights }}",
        "",
        f"explore {STEP} {{ {layout.explore}; zero 1, 3; keep all, least }}",
    ]
    text = "\n".join(lines) + "\n"
    compiled(text)
    return text


@dataclass(frozen=True, slots=True)
class _Layout:
    """What differs between models: parameters, axes, the group of layers, its rows and the space."""

    params: tuple[str, ...]
    mesh: str
    group: str
    rows: str
    explore: str
    parallel: Parallelism


def _of_heads(model: ModelConfig, request: StepRequest) -> _Layout:
    """Layers by tensor parallelism: TP x PP x DP."""
    sizes = [tp for tp in _powers(MOST_TP) if model.heads % tp == model.inner % tp == model.kv_heads % tp == 0]
    contexts = _contexts(model, request)
    sizes = [tp for tp in sizes if request.gpus % (tp * contexts[0]) == 0]
    stages = _stages(model, request)
    cp, pp = _first(request, contexts, stages, sizes[-1])
    batches = [each for each in _powers(MOST_MICROBATCH) if request.sequences % each == 0]
    params = (
        f"param TP = {sizes[-1]} in {_list(sizes)}",
        f"param PP = {pp} in {_list(stages)}",
        f"param MB = 1 in {_list(batches)}  # sequences that a pipeline takes at once",
    )
    mesh = f"mesh tp TP, dp {request.gpus} / (TP * PP), pp PP"
    if contexts != [1]:
        mesh = f"mesh tp TP, cp CP, dp {request.gpus} / (TP * CP * PP), pp PP"
    explore = f"TP {_list(sizes)}; PP {_list(stages)}; MB {_list(batches)}; {_pipelines(model, stages)}"
    parallel = Parallelism(request.gpu, sizes[-1], node=request.node)
    return _in_parts(_Layout(params, mesh, "pod.tp", f"MB * {request.length}", explore, parallel), cp, contexts)


def _contexts(model: ModelConfig, request: StepRequest) -> list[int]:
    """How many ranks may have parts of a sequence, an early and a late chunk each."""
    whole, requested = bool(model.window), request.cp
    sizes = [cp for cp in _powers(MOST_CP) if request.length // cp >= LEAST_PART] or [1]
    if requested is None:
        return (
            [1] if whole else [cp for cp in sizes if request.length % (2 * cp) == 0 and request.gpus % cp == 0] or [1]
        )
    if requested > 1 and (whole or request.length % (2 * requested) or request.gpus % requested):
        what = "windows of keys" if whole else f"{request.gpus} GPUs and sequences of {request.length}"
        message = f"{requested} ranks do not share {what}"
        hint = f"a number that divides {request.gpus} GPUs, and twice of it {request.length} tokens"
        raise RequestError(Code.MGS304, "cp", message, hint)
    return [requested]


def _of_experts(model: ModelConfig, request: StepRequest) -> _Layout:
    """Layers whose experts are shared by ranks that attend to sequences of their own: EP x PP."""
    fitting = [ep for ep in EP_SIZES if model.experts % ep == 0 and request.gpus % ep == 0]
    if not fitting:
        message = f"{model.experts} experts are not shared by {request.gpus} GPUs"
        raise RequestError(Code.MGS304, "gpus", message, f"a multiple of {EP_SIZES[-1]} GPUs")
    stages = [each for each in _stages(model, request) if request.gpus % (each * fitting[-1]) == 0]
    contexts = _contexts(model, request)
    cp, pp = _first(request, contexts, stages)
    ep = next(each for each in fitting if request.gpus % (each * pp) == 0)
    params = f"param EP = {ep} in {_list(fitting[::-1])}", f"param PP = {pp} in {_list(stages)}"
    experts = f"mesh ep EP, edp {request.gpus} / (PP * EP) over"
    mesh = f"mesh dp {request.gpus} / PP, pp PP; {experts} dp"
    if contexts != [1]:
        mesh = f"mesh cp CP, dp {request.gpus} / (CP * PP), pp PP; {experts} cp, dp"
    explore = f"EP {_list(fitting[::-1])}; PP {_list(stages)}; {_pipelines(model, stages)}"
    parallel = Parallelism(request.gpu, ep, node=request.node, own_tokens=True)
    return _in_parts(_Layout(params, mesh, "pod.ep", f"EP * {request.length}", explore, parallel), cp, contexts)


def _first(request: StepRequest, contexts: list[int], stages: list[int], tp: int = 1) -> tuple[int, int]:
    """CP and PP of the layout that the file has without ``--set``: the first in which ranks by data have equal batches.

    With few sequences these are several stages; where there is none, compiling the file says why.
    """
    for cp, pp in product(contexts, stages):
        by_data, left = divmod(request.gpus, tp * cp * pp)
        if not left and request.sequences % by_data == 0:
            return cp, pp
    return contexts[0], stages[0]


def _in_parts(layout: _Layout, first: int, contexts: list[int]) -> _Layout:
    """The layout in which ``first`` ranks, or others, have parts of a sequence, and exchange keys in each way."""
    if contexts == [1]:
        return layout
    params = f"param CP = {first} in {_list(contexts)}", *layout.params
    explore = f"CP {_list(contexts)}; context gathered, ring; {layout.explore}"
    return replace(layout, params=params, rows=f"{layout.rows} / CP", explore=explore)


def _stages(model: ModelConfig, request: StepRequest) -> list[int]:
    return [each for each in _powers(min(MOST_STAGES, model.layers)) if request.gpus % each == 0]


def _pipelines(model: ModelConfig, stages: list[int]) -> str:
    chunks = [each for each in (2, 5, 10) if any(model.layers % (each * pp) == 0 for pp in stages if pp > 1)]
    interleaved = "".join(f", interleaved(chunks={each})" for each in chunks)
    dual = ", dual" if model.expert_layers and any(pp % 2 == 0 for pp in stages) else ""  # rows travel under kernels
    return f"pipeline one_f_one_b, zero_bubble{interleaved}{dual}"


def _powers(most: int) -> list[int]:
    """
    >>> _powers(9)
    [1, 2, 4, 8]
    """
    return [1 << shift for shift in range(most.bit_length()) if 1 << shift <= most]


def _list(values: list[int]) -> str:
    return ", ".join(map(str, values))


def _names(model: ModelConfig) -> tuple[str, ...]:
    """The workloads of a step in their order: layers without experts come first (DeepSeek-V3)."""
    return ("dense", LAYER) if model.expert_layers and model.dense_layers else (LAYER,)


def _layers(model: ModelConfig, request: StepRequest, layout: _Layout) -> Iterator[str]:
    """The layers forward; their backward passes are derived by the step."""
    for block in whole_layer(model, model.kv_heads, layout.parallel):
        workload = block[block.index("workload ") :]
        if workload.startswith(("layer_back", "dense_back"), len("workload ")):
            continue
        text = workload.replace(" on node ", f" on {layout.group} ", 1).replace("[M, ", f"[{layout.rows}, ")
        in_parts = "CP" in layout.rows
        text = text.replace("causal=yes", "causal=yes, over=cp") if in_parts else text
        if not layout.parallel.own_tokens:
            length = f"{request.length}{' / CP' if in_parts else ''}"
            text = text.replace("  repeat ", f"  batch x by {length}\n  repeat ", 1)
        yield text.rstrip("\n")
        yield ""
