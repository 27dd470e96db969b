"""From how many tokens on vLLM shards activations and fuses the pairs of a layer: a file for ``--config``.

Its passes fuse all pairs as async-TP of PyTorch does. ``sp_min_token_num`` is the number of rows from which that pays.
"""

import json

from ....compiler.ir import Pattern
from ...implementations.offers import Offer
from ...implementations.promise import MIN_GAIN
from ...layers.offers.te_layers import te_layers
from ...policy.graph_sweep import GraphPoint, GraphSweep
from ..base import Options, Target, comments, refused
from .heading import heading, settings_text

NAME = "torch_async_tp"


def _write(sweep: GraphSweep, options: Options) -> str:
    graph = sweep.points[0].advice.scenario.graph
    if any(layer.backward for layer in te_layers(graph)):
        raise refused(f"{graph.name} is a backward pass, which vLLM has not", "export the forward pass: --workload W")
    points = sorted(sweep.points, key=_tokens)
    pays = [_pays(point) for point in points]
    first = pays.index(True) if True in pays else len(points)
    if not all(pays[first:]):
        end = points[first + pays[first:].index(False)]
        message = f"fusion pays from {settings_text(points[first])} on, and no longer at {settings_text(end)}"
        raise refused(message, "vLLM has one threshold: sweep the rows above")
    config: dict[str, bool | int] = {"enable_sp": first < len(points), "fuse_gemm_comms": first < len(points)}
    if first < len(points):
        config["sp_min_token_num"] = _tokens(points[first])
    why = [_why(point) for point in points]
    text = json.dumps({"pass_config": config})
    return f"{heading(sweep, 'vllm')}{comments(*why)}compilation-config: '{text}'\n"


def _tokens(point: GraphPoint) -> int:
    """Rows of what is gathered before the products, the tokens of a step.

    Raises
    ------
    Refused
        If the layer gathers nothing.
    """
    ops = point.advice.scenario.graph.ops
    rows = [op.workload.gemm.m for op in ops if op.workload.pattern is Pattern.AG_GEMM and op.workload.gemm is not None]
    if not rows:
        raise refused(f"{point.advice.scenario.name} has no AG+GEMM, and vLLM fuses no other layer", "use rows by rank")
    return max(rows)


def _pays(point: GraphPoint) -> bool:
    """Whether fusion gains beyond its error; where that was not measured, beyond what the profile resolves."""
    offer = _offer(point)
    error, resolution = offer.promise.error, point.advice.scenario.resolution
    return offer.promise.speedup > 1 + max(MIN_GAIN, resolution if error is None else error)


def _offer(point: GraphPoint) -> Offer:
    offer = point.advice.offer(NAME)
    if offer is None:
        message = f"what async-TP of PyTorch takes is not known for {point.advice.scenario.system.gpu.name} here"
        raise refused(message, "it is known for H100, H200, B200 and B300")
    return offer


def _why(point: GraphPoint) -> str:
    gain, offers = _offer(point).promise.speedup, point.advice.offers
    library = "" if offers is None else f" over {offers.library}"
    return f"{settings_text(point)}: {gain:.2f}x{library}; the recommended schedule {point.advice.speedup:.2f}x"


VLLM = Target("vllm", "the passes of vLLM, for vllm serve --config", _write)
