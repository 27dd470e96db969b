"""Traces in the form of torch.profiler on a GPU, as Kineto writes them, and profiles of Nsight Systems."""

import json
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

Event = dict[str, Any]
COPY = "start INT, end INT, deviceId INT, bytes INT, copyKind INT, srcDeviceId INT, dstDeviceId INT"
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


def other(name: str, start: float, duration: float, stream: int = 7, blocks: int = 4096) -> Event:
    """A kernel that is no product and no collective."""
    args = {"External id": 10**7 + int(start), "stream": stream, "grid": [blocks, 1, 1]}
    return {"ph": "X", "cat": "kernel", "name": name, "ts": start, "dur": duration, "args": args}


def sharded_layer(number: int, at: float) -> list[Event]:
    """A layer of 4096 tokens on 8 GPUs, 5 us between its kernels, with a small one in a stream beside them."""
    tokens, hidden, inner = 4096, 8192, 3584
    whole = tokens * hidden
    return [
        other("void norm_kernel<bf16>(float)", at, 12),
        collective("_allgather_base", (whole // 8, whole), at + 17, 210),
        *gemm(10 * number, (tokens, inner, hidden), at + 232, 370),
        other("copy_kernel", at + 240, 40, stream=20, blocks=32),
        other("act::act_and_mul<silu>", at + 607, 30),
        other("flash_fwd_kernel", at + 642, 160),
        *gemm(10 * number + 1, (tokens, hidden, inner), at + 807, 380),
        collective("_reduce_scatter_base", (whole, whole // 8), at + 1192, 205),
        other("add_kernel", at + 1402, 7),
    ]


def document(events: Sequence[Event], gpu: str = "NVIDIA H100 80GB HBM3") -> dict[str, Any]:
    """A trace of rank 3 with these events alone."""
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": gpu, "numSms": 132}],
        "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
        "traceEvents": list(events),
    }


def trace(events: list[Event], gpu: str = "NVIDIA H100 80GB HBM3") -> str:
    """A whole trace of rank 3."""
    noise = [
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
        {"ph": "X", "cat": "python_function", "name": "forward", "ts": 1.5, "dur": 10.25},
        {"ph": "X", "cat": "kernel", "name": "vectorized_elementwise", "ts": 9, "dur": 2, "args": {"External id": 7}},
    ]
    return json.dumps({**document([*noise, *events], gpu), "traceName": "step.json"}, indent=1)


LAYERS = trace([event for number in range(5) for event in layer(number, 1_700_000_000.0 + 1200 * number)])


def nsight(file: Path, copies: Sequence[tuple[object, ...]], *statements: str) -> Path:
    """A profile of Nsight Systems with these rows of copies, as the columns above, in ``file``."""
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY ({COPY})")
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?, ?, ?)", copies)
        for statement in statements:
            database.execute(statement)
    return file


def several_ranks(ranks: int, seed: int, spread: float, layers: int = 2) -> list[list[Event]]:
    """A step as each of so many ranks runs it: kernels differ by ``spread``, collectives end when all have come.

    Each rank begins by itself and has a clock of its own.
    Products and collectives take as long as the profile of eight H100 says.
    """
    drawn = random.Random(seed)
    tokens, hidden, inner = 4096, 8192, 3584
    whole = tokens * hidden
    program: list[tuple[str, float, Any]] = []
    for number in range(layers):
        program += [
            ("norm", 12, None),
            ("_allgather_base", 210.2, (whole // ranks, whole)),
            ("mm", 309.4, (tokens, inner, hidden)),
            ("act", 30, None),
            ("flash", 160, None),
            ("mm", 311.7, (tokens, hidden, inner)),
            ("_reduce_scatter_base", 198.3, (whole, whole // ranks)),
            (f"add_{number}", 7, None),
        ]
    now = [drawn.uniform(0, 40 * spread) for _ in range(ranks)]
    clocks = [1_700_000_000.0 + drawn.uniform(-4e6, 4e6) for _ in range(ranks)]
    events: list[list[Event]] = [[] for _ in range(ranks)]
    for number, (name, took, sizes) in enumerate(program):
        begins = [at + 5 for at in now]
        for rank in range(ranks):
            at = clocks[rank] + begins[rank]
            if name.startswith("_"):
                now[rank] = max(begins) + took
                events[rank].append(collective(name, sizes, at, now[rank] - begins[rank], ranks))
                continue
            longer = took * (1 + drawn.uniform(0, spread))
            now[rank] = begins[rank] + longer
            events[rank] += gemm(number, sizes, at, longer) if name == "mm" else [other(name, at, longer)]
    return events
