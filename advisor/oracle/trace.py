"""A trace as ``torch.profiler`` writes it, made of known times, for profile-guided estimates of TorchInductor.

Its reader wants kernels with the names, ranks and elements of a collective, and operations with shapes, strides and
types, joined to their kernels by ``External id``. A product is found by exact shapes and strides alone: so each one
stands here with both operands as they are and transposed.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from itertools import count, product

from ... import __version__
from ...compiler.ir import DType, GemmShape, Gpu, JsonObject, System
from .times import COLLECTIVES, collective_sizes, collective_us, gemm_us

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
        whole = num_bytes // dtype.num_bytes
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
