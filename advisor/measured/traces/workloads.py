"""Write the pairs of a trace as workloads, with their measured times beside the predicted ones.

A trace does not say how the GPUs are joined: the system is the node of the library.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....compiler import compile_text
from ....compiler.ir import TICKS_PER_US, GemmShape, GroupedGemmShape, Scenario
from ....compiler.machine.device_ids import LibraryGpu
from ....compiler.text.formatting.comments import comment_lines
from ....compiler.text.formatting.fmt import format_text
from ....compiler.text.quantities import us_text
from ....simcore.kernels.grouped_gemm import grouped_gemm_work
from ....simcore.lower.collective import library_collective_time
from ..tables.gemm_times import gemm_ticks
from .pairs import PairShape, TracedPair

_WORDS = {"all_gather": "ag_gemm", "reduce_scatter": "gemm_rs", "all_reduce": "gemm_ar", "all_to_all": "gemm_a2a"}


@dataclass(frozen=True, slots=True)
class TraceOrigin:
    """Where pairs come from: the file, the kind of trace, its rank, and what is in doubt."""

    file: str
    kind: str
    rank: int | None
    doubts: tuple[str, ...]


def workloads_text(pairs: Sequence[TracedPair], model: LibraryGpu, origin: TraceOrigin) -> str:
    """Return a file with a system for each number of ranks and a workload for each pair.

    All pairs have as many ranks as a switch of the library has ports, or fewer.
    """
    rank = "" if origin.rank is None else f", rank {origin.rank}"
    head = [f"Read from {origin.file[:128]}, a trace of {origin.kind}{rank}."]
    doubts = ["how the GPUs are joined is not in a trace: they are a node of the library", *origin.doubts]
    comments = [
        *comment_lines(head[0]),
        "#",
        "# In doubt:",
        *(line for doubt in doubts for line in comment_lines(doubt, "- ")),
    ]
    systems = [_system(model, ranks) for ranks in sorted({pair.shape.num_ranks for pair in pairs})]
    base = ["mgs 1", "", *comments, "", f'use "{model.library}"', "", *systems]
    named = [(f"{_word(pair.shape)}_{number}", pair) for number, pair in enumerate(pairs, 1)]
    bare = "\n".join([*base, *(_workload(name, pair.shape) for name, pair in named)])
    compiled = compile_text(bare)
    blocks = [
        "\n".join(["", *_times(pair, compiled.scenario(name).case), _workload(name, pair.shape)])
        for name, pair in named
    ]
    return format_text("\n".join([*base, *blocks]) + "\n")


def _system(model: LibraryGpu, ranks: int) -> str:
    fabric = f"switch(nvswitch, link={model.link})" if model.is_nvidia else f"full_mesh({model.link})"
    return f"system node_{ranks} {{ gpus {ranks} x {model.name}; fabric {fabric} }}\n"


def _word(shape: PairShape) -> str:
    word = "a2a_gemm" if shape.dispatched else _WORDS[shape.operation]
    return word.replace("gemm", "experts") if shape.groups > 1 else word


def _workload(name: str, shape: PairShape) -> str:
    """The tensors of all ranks: a GEMM of one rank has a part of the columns, or of the inner dimension."""
    dtype, n = shape.dtype.value, shape.num_ranks
    if shape.operation == "all_to_all":
        left, right = f"[{shape.m}, {shape.k}]", f"[{shape.groups * shape.k}, {shape.n}]"
        result = _exchanged(shape)
    elif shape.is_gathered:
        left, right = f"[{shape.m}, {shape.k}] shard rows", f"[{shape.k}, {shape.n * n}] shard cols"
        result = "gemm(all_gather(x), w)"
    else:
        left, right = f"[{shape.m}, {shape.k * n}] shard cols", f"[{shape.k * n}, {shape.n}] shard rows"
        result = f"{shape.operation}(gemm(x, w))"
    return (
        f"workload {name} on node_{n} {{\n  x = tensor {dtype}{left}\n  w = tensor {dtype}{right}\n  y = {result}\n}}"
    )


def _exchanged(shape: PairShape) -> str:
    """The product of what a rank gets, or sends; of several experts each has as many rows, or one more."""
    each, more = divmod(shape.m, shape.groups)
    rows = ", ".join(str(each + (number < more)) for number in range(shape.groups))
    product, experts = ("grouped_gemm", f", rows=[{rows}]") if shape.groups > 1 else ("gemm", "")
    if shape.dispatched:
        return f"{product}(all_to_all(x), w{experts})"
    return f"all_to_all({product}(x, w{experts}))"


def _times(pair: TracedPair, scenario: Scenario) -> list[str]:
    """Comments: what the run took, and what the profile of the library says of both parts alone."""
    shape = pair.shape
    together = "."
    if pair.together_us is not None:
        together = f", both together {us_text(pair.together_us)}; {pair.hidden:.0%} of the {shape.operation} hidden."
    times = "time" if pair.count == 1 else "times"
    measured = (
        f"{pair.count} {times} in the trace, medians: {shape.operation} {us_text(pair.collective_us)}, GEMM"
        f" {us_text(pair.gemm_us)}{together}"
    )
    gemm_us = _gemm_ticks(scenario) / TICKS_PER_US
    try:
        collective = us_text(library_collective_time(scenario).us)
    except ValueError:
        collective = f"not predicted, {scenario.gpu.name} has no constants for it"
    return [
        *comment_lines(measured),
        *comment_lines(f"Predicted, each alone: {shape.operation} {collective}, GEMM {us_text(gemm_us)}."),
    ]


def _gemm_ticks(scenario: Scenario) -> int:
    """Ticks of the product alone on all SMs."""
    shape, gpu = scenario.workload.compute, scenario.gpu
    if isinstance(shape, GroupedGemmShape):
        return grouped_gemm_work(gpu, shape, gpu.sms).alone_ticks
    assert isinstance(shape, GemmShape), "pairs of a trace have a GEMM, or one of several experts"
    return int(gemm_ticks(gpu, np.array([[shape.m, shape.n, shape.k]], dtype=np.int64), shape.dtype)[0])
