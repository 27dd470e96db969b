"""Traces in the form of torch.profiler on a GPU, as Kineto writes them."""

import json
from typing import Any

Event = dict[str, Any]
BF16, HALF = "c10::BFloat16", "c10::Half"


def gemm(number: int, shape: tuple[int, int, int], start: float, duration: float, dtype: str = BF16) -> list[Event]:
    """An operation [m, n, k] and its kernel."""
    m, n, k = shape
    args = {"External id": number, "Input Dims": [[m, k], [k, n]], "Input type": [dtype, dtype]}
    launch = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": start - 20, "dur": 9, "args": args}
    kernel = {"External id": number, "device": 0, "stream": 7, "correlation": number}
    return [
        launch,
        {"ph": "X", "cat": "kernel", "name": "nvjet_hsh_128x256", "ts": start, "dur": duration, "args": kernel},
    ]


def collective(name: str, sizes: tuple[int, int], start: float, duration: float, ranks: int = 8) -> Event:
    """A kernel of NCCL with elements in and out."""
    args = {
        "External id": 10**6 + int(start),
        "stream": 24,
        "Collective name": name,
        "In msg nelems": sizes[0],
        "Out msg nelems": sizes[1],
        "Group size": ranks,
        "dtype": "BFloat16",
        "Process Group Ranks": str(list(range(ranks))),
    }
    kernel = f"ncclDevKernel_{name}_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    return {"ph": "X", "cat": "kernel", "name": kernel, "ts": start, "dur": duration, "args": args}


def layer(number: int, at: float, ranks: int = 8) -> list[Event]:
    """AG+GEMM, then GEMM+RS, of 4096 tokens, and an all_gather of weights beside them that fits no matrix."""
    tokens, hidden, inner = 4096, 8192, 3584
    whole = tokens * hidden
    return [
        collective("_allgather_base", (whole // ranks, whole), at, 190.0 + number, ranks),
        *gemm(10 * number, (tokens, inner, hidden), at + 200, 370.0),
        collective("_allgather_base", (1_000_003, 1_000_003 * ranks), at + 300, 50.0, ranks),
        *gemm(10 * number + 1, (tokens, hidden, inner), at + 580, 380.0),
        collective("_reduce_scatter_base", (whole, whole // ranks), at + 900, 200.0, ranks),
    ]


def trace(events: list[Event], gpu: str = "NVIDIA H100 80GB HBM3") -> str:
    """A whole trace of rank 3."""
    noise = [
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
        {"ph": "X", "cat": "python_function", "name": "forward", "ts": 1.5, "dur": 10.25},
        {"ph": "X", "cat": "kernel", "name": "vectorized_elementwise", "ts": 9, "dur": 2, "args": {"External id": 7}},
    ]
    document = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": gpu, "numSms": 132}],
        "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
        "displayTimeUnit": "ms",
        "traceEvents": [*noise, *events],
        "traceName": "step.json",
    }
    return json.dumps(document, indent=1)


LAYERS = trace([event for number in range(5) for event in layer(number, 1_700_000_000.0 + 1200 * number)])
