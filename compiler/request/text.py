"""A request as ``.mgs`` text."""

from math import gcd

from ..codes import Code
from ..ir import DType, Pattern
from .errors import RequestError
from .request import BESIDE_PATTERNS, COLLECTIVE_PATTERNS, Request
from .shipped import shipped_gpu

WORKLOAD = "request"
MAX_ROWS, LEAST_ROW_BYTES = 64, 128
"""Rows that each rank has of a tensor of so many bytes: enough to be cut into chunks, of a cache line at the least."""

# Each pattern in the language; {N} and {K} are the columns of all ranks where a weight is sharded.
_STATEMENTS = {
    Pattern.AG_GEMM: (
        "x = tensor {dtype}[{m}, {k}] shard rows",
        "w = tensor {dtype}[{k}, {N}] shard cols",
        "y = gemm(all_gather(x), w)",
    ),
    Pattern.GEMM_RS: (
        "x = tensor {dtype}[{m}, {K}] shard cols",
        "w = tensor {dtype}[{K}, {n}] shard rows",
        "y = reduce_scatter(gemm(x, w))",
    ),
    Pattern.GEMM_AR: (
        "x = tensor {dtype}[{m}, {K}] shard cols",
        "w = tensor {dtype}[{K}, {n}] shard rows",
        "y = all_reduce(gemm(x, w))",
    ),
    Pattern.A2A_GEMM: ("x = tensor {dtype}[{m}, {k}]", "w = tensor {dtype}[{k}, {n}]", "y = gemm(all_to_all(x), w)"),
    Pattern.GEMM_A2A: ("x = tensor {dtype}[{m}, {k}]", "w = tensor {dtype}[{k}, {n}]", "y = all_to_all(gemm(x, w))"),
    Pattern.GEMM: ("x = tensor {dtype}[{m}, {k}]", "w = tensor {dtype}[{k}, {n}]", "y = gemm(x, w)"),
}
_ANY_SIZE = (Pattern.ALL_REDUCE, Pattern.BROADCAST, Pattern.SEND_RECV)
_SHARDED = (Pattern.ALL_GATHER, Pattern.GEMM_BESIDE_AG)
_CALLS = {Pattern.GEMM_BESIDE_AG: "all_gather", Pattern.GEMM_BESIDE_A2A: "all_to_all"}


def request_text(request: Request, ranks: int, name: str = WORKLOAD, system: str = "node", head: str = "") -> str:
    """Return the workload ``name`` of ``request`` on the ``system`` that ``head`` declares, with what to explore.

    Raises
    ------
    RequestError
        If the bytes of a collective do not divide by the ``ranks``.
    """
    uses = "".join(f'use "implementations/{name}"\n' for name in request.implementations)
    statements = "".join(f"  {line}\n" for line in (*_gemm_lines(request, ranks), *_collective_lines(request, ranks)))
    return f"{head}{uses}\nworkload {name} on {system} {{\n{statements}}}\n{_explore(request, name)}"


def system_text(request: Request) -> str:
    """Return the system of shipped hardware that ``request`` names."""
    gpu = shipped_gpu(request.gpu)
    return (
        f'mgs 1\n\nuse "{gpu.library}"\n\n'
        f"system node {{ gpus {request.ranks} x {gpu.name}; fabric {gpu.fabric(request.topology)} }}\n"
    )


def _gemm_lines(request: Request, ranks: int) -> tuple[str, ...]:
    if request.kind in COLLECTIVE_PATTERNS:
        return ()
    lines = _STATEMENTS.get(request.kind, _STATEMENTS[Pattern.GEMM])
    m, n, k = request.m, request.n, request.k
    return tuple(line.format(dtype=request.dtype, m=m, n=n, k=k, N=n * ranks, K=k * ranks) for line in lines)


def _collective_lines(request: Request, ranks: int) -> tuple[str, ...]:
    if request.kind not in (*COLLECTIVE_PATTERNS, *BESIDE_PATTERNS):
        return ()
    size = DType(request.dtype).num_bytes
    whole = ranks * size
    if request.kind in _ANY_SIZE and request.num_bytes % whole and request.num_bytes % size == 0:
        return (f"v = tensor {request.dtype}[1, {request.num_bytes // size}]", f"moved = {request.pattern}(v)")
    if request.num_bytes % whole:
        near = max(1, round(request.num_bytes / whole)) * whole
        message = f"{request.num_bytes} do not divide by {ranks} ranks and {request.dtype}"
        raise RequestError(Code.MGS304, "num_bytes", message, f"for instance {near}")
    elements = request.num_bytes // whole
    rows = gcd(elements, MAX_ROWS)
    while rows > 1 and elements // rows * DType(request.dtype).num_bytes < LEAST_ROW_BYTES:
        rows //= 2
    shard = " shard rows" if request.kind in _SHARDED else ""
    call = _CALLS.get(request.kind, request.pattern)
    return (f"v = tensor {request.dtype}[{rows * ranks}, {elements // rows}]{shard}", f"moved = {call}(v)")


def _explore(request: Request, name: str) -> str:
    said = []
    for word, values in (
        ("schedules", request.schedules),
        ("engine", request.engines),
        ("implementations", request.implementations),
    ):
        said += [f"{word} {', '.join(values)}"] if values else []
    if request.staging_bytes is not None:
        said.append(f"staging <= {request.staging_bytes} B")
    return f"explore {name} {{ {'; '.join(said)} }}\n" if said else ""
