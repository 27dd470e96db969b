"""Times of a GEMM or a collective alone, in us, None where no form was fitted; and a trace of such times."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count, product

from ... import __version__
from ...compiler.ir import (
    TICKS_PER_US,
    CollectiveRegion,
    DType,
    GemmShape,
    Gpu,
    JsonObject,
    OpCase,
    OpShape,
    Pattern,
    Shard,
    System,
    Tensor,
)
from ...compiler.planning.knobs.library import library_on, library_scaling
from ...simcore.kernels.gemm import gemm_work
from ...simcore.kernels.nccl import NcclCollective, collective_time
from ..answer.extrapolation import is_fitted_gemm
from ..bounds.lower_bound import quick_bound_ticks

COLLECTIVES = tuple(each.value for each in NcclCollective)
"""The collectives that have a form."""

LATENCY = 0
"""Number of bytes that asks for the time of a collective that moves next to nothing."""


def gemm_us(gpu: Gpu, shape: GemmShape) -> float | None:
    """Return the time of a GEMM on all SMs, with its launch; None for other sizes or types than fitted."""
    return gemm_work(gpu, shape, gpu.sms).alone_ticks / TICKS_PER_US if is_fitted_gemm(gpu, shape) else None


def collective_us(machine: System, name: str, num_bytes: int, ranks: int) -> float | None:
    """Return the time of the library's collective among ``ranks`` GPUs, without its launch.

    It is None for one without a form, beyond one switch, and for other numbers of bytes or GPUs than fitted.
    """
    region = _region(machine)
    if region is None or name not in COLLECTIVES or ranks not in region.ranks or ranks > machine.num_ranks:
        return None
    low, high = region.num_bytes
    if num_bytes != LATENCY and not low <= num_bytes <= high:
        return None
    try:
        gpu = replace(machine.gpu, collectives=library_on(machine))
        time = collective_time(gpu, NcclCollective(name), num_bytes or low, ranks)
    except ValueError:  # a profile may lack the all_to_all
        return None
    return time.us if time.ticks >= _least_ticks(machine, name, num_bytes or low, ranks) else None


def _least_ticks(machine: System, name: str, num_bytes: int, ranks: int) -> int:
    """The bound of the collective on ``ranks`` GPUs."""
    moved = Tensor("x", DType.FP8, ranks, num_bytes // ranks, Shard.ROWS)
    workload = OpShape(name, "", Pattern(name), (moved,), moved, None, "y")
    return quick_bound_ticks(OpCase(name, replace(machine, num_ranks=ranks), workload))


def collective_sizes(machine: System) -> tuple[int, ...]:
    """Return the numbers of bytes, doubling, for which collectives have a time."""
    region = _region(machine)
    if region is None:
        return ()
    low, high = region.num_bytes
    return tuple(low << shift for shift in range((high // low).bit_length()))


def _region(machine: System) -> CollectiveRegion | None:
    """Where the collectives of the profile were fitted, all behind one switch; None over other links than fitted on."""
    scaled = library_on(machine) is None or library_scaling(replace(machine, num_ranks=2))
    known = machine.fabric.one_switch is not None and not scaled
    return machine.gpu.calibrated.collectives if known else None


_PROFILER_NAMES = {
    "all_gather": ("_allgather_base", "AllGather"),
    "reduce_scatter": ("_reduce_scatter_base", "ReduceScatter"),
    "all_reduce": ("allreduce", "AllReduce"),
    "all_to_all": ("all_to_all", "SendRecv"),
}
TYPES = {  # of the profiler's operations and of its collectives
    DType.BF16: ("c10::BFloat16", "BFloat16"),
    DType.FP16: ("c10::Half", "Half"),
}


def trace_text(machine: System, dtype: DType, gemms: Iterable[GemmShape]) -> str:
    """Return the trace as JSON, with its origin under ``magus``, which readers pass over.

    Of ``gemms`` and of collectives of ``dtype`` it has those that are known.
    """
    ranks = list(range(machine.num_ranks))
    events = [*_collective_events(machine, ranks, dtype), *_gemm_events(machine.gpu, gemms)]
    body = json.dumps(events, sort_keys=True, separators=(",", ":")).encode()
    model = machine.gpu.collectives
    origin = {
        "version": __version__,
        "gpu": machine.gpu.name,
        "ranks": machine.num_ranks,
        "times": "closed forms of the profile, each kernel alone",
        "gemm_error": float(machine.gpu.gemm.error),
        "collective_error": None if model is None else float(model.error),
        "hash": f"sha256:{hashlib.sha256(body).hexdigest()}",
    }
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "ranks": ranks}]
    document: JsonObject = {
        "schemaVersion": 1,
        "magus": origin,
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": len(ranks), "pg_config": groups},
    }
    head = json.dumps(document, indent=1).removesuffix("\n}")
    lines = ",\n".join(f"  {json.dumps(event)}" for event in events)
    return f'{head},\n "traceEvents": [\n{lines}\n ]\n}}\n'


def _collective_events(machine: System, ranks: list[int], dtype: DType) -> Iterator[JsonObject]:
    for name, num_bytes in product(COLLECTIVES, collective_sizes(machine)):
        us = collective_us(machine, name, num_bytes, len(ranks))
        if us is None:
            continue
        title, kernel = _PROFILER_NAMES[name]
        whole = num_bytes // dtype.bytes_of(1)
        args = {
            "Collective name": title,
            "Process Group Name": "0",
            "Process Group Ranks": str(ranks),
            "Group size": len(ranks),
            "In msg nelems": whole // len(ranks) if name == "all_gather" else whole,
            "Out msg nelems": whole // len(ranks) if name == "reduce_scatter" else whole,
            "dtype": TYPES[dtype][1],
        }
        yield _event("kernel", f"ncclDevKernel_{kernel}", us, args)


def _gemm_events(gpu: Gpu, gemms: Iterable[GemmShape]) -> Iterator[JsonObject]:
    numbers = count(1)
    for shape in dict.fromkeys(gemms):
        us = gemm_us(gpu, shape)
        if us is None:
            continue
        left, right = (shape.m, shape.k), (shape.k, shape.n)
        for strides in product(*([[dims[1], 1], [1, dims[0]]] for dims in (left, right))):
            number, args = next(numbers), {"Input Dims": [left, right], "Input Strides": strides}
            types = {"Input type": [TYPES[shape.dtype][0]] * 2}
            yield _event("cpu_op", "aten::mm", 1.0, {"External id": number, **args, **types})
            yield _event("kernel", "gemm", us, {"External id": number})


def _event(kind: str, name: str, us: float, args: JsonObject) -> JsonObject:
    return {"ph": "X", "cat": kind, "name": name, "pid": 0, "tid": 0, "ts": 0, "dur": round(us, 3), "args": args}
