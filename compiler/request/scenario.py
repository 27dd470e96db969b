"""From a request to its scenario."""

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import count
from math import gcd
from pathlib import Path

from ..codes import Code
from ..ir import DType, Pattern, Scenario
from ..pipeline import compile_text, compiler_of
from ..text.diagnostics import CompileError, Report, did_you_mean, listing
from ..text.load import load, read_source
from ..text.names import Kind, Scope
from .request import COLLECTIVE_PATTERNS, INDEPENDENT_PATTERNS, Request, RequestError, shipped_gpu

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


def request_text(
    request: Request,
    ranks: int,
    name: str = WORKLOAD,
    system: str = "node",
    head: str = "",
    sizes: Mapping[str, object] | None = None,
) -> str:
    """Return the workload ``name`` of ``request`` on the ``system`` that ``head`` declares, with what to explore.

    ``sizes`` is what stands for m, n and k, and for N and K, those of all ranks; None: the numbers.

    Raises
    ------
    RequestError
        If the bytes of a collective do not divide by the ``ranks``.
    """
    uses = "".join(f'use "implementations/{name}"\n' for name in request.implementations)
    statements = "".join(
        f"  {line}\n"
        for line in (*_gemm_lines(request, sizes or _sizes(request, ranks)), *_collective_lines(request, ranks))
    )
    return f"{head}{uses}\nworkload {name} on {system} {{\n{statements}}}\n{_explore(request, name)}"


def system_text(request: Request) -> str:
    """Return the system of shipped hardware that ``request`` names."""
    gpu = shipped_gpu(request.gpu)
    return (
        f'mgs 1\n\nuse "{gpu.library}"\n\n'
        f"system node {{ gpus {request.ranks} x {gpu.name}; fabric {gpu.fabric(request.topology)} }}\n"
    )


def _sizes(request: Request, ranks: int) -> dict[str, int]:
    return {"m": request.m, "n": request.n, "k": request.k, "N": request.n * ranks, "K": request.k * ranks}


def _gemm_lines(request: Request, sizes: Mapping[str, object]) -> tuple[str, ...]:
    if request.kind in COLLECTIVE_PATTERNS:
        return ()
    lines = _STATEMENTS.get(request.kind, _STATEMENTS[Pattern.GEMM])
    return tuple(line.format(dtype=request.dtype, **sizes) for line in lines)


def _collective_lines(request: Request, ranks: int) -> tuple[str, ...]:
    if request.kind not in (*COLLECTIVE_PATTERNS, *INDEPENDENT_PATTERNS):
        return ()
    dtype = DType(request.dtype)
    block, size = dtype.block, dtype.bytes_of(dtype.block)
    whole = ranks * size
    if request.kind in _ANY_SIZE and request.num_bytes % whole and request.num_bytes % size == 0:
        return (f"v = tensor {request.dtype}[1, {request.num_bytes // size * block}]", f"moved = {request.pattern}(v)")
    if request.num_bytes % whole:
        near = max(1, round(request.num_bytes / whole)) * whole
        message = f"{request.num_bytes} do not divide by {ranks} ranks and {request.dtype}"
        raise RequestError(Code.MGS304, "num_bytes", message, f"for instance {near}")
    blocks = request.num_bytes // whole
    rows = gcd(blocks, MAX_ROWS)
    while rows > 1 and blocks // rows * size < LEAST_ROW_BYTES:
        rows //= 2
    shard = " shard rows" if request.kind in _SHARDED else ""
    call = _CALLS.get(request.kind, request.pattern)
    return (f"v = tensor {request.dtype}[{rows * ranks}, {blocks // rows * block}]{shard}", f"moved = {call}(v)")


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


MAX_KEPT = 1024

Stamp = tuple[tuple[str, int, int, int], ...]
"""Path, number, time of change and size of each file that a scenario was read from."""

_files_of: dict[str, tuple[str, ...]] = {}
"""The files that a system file was read from last; they are others only once one of them has changed."""


def scenario_of(request: Request, read_at: Stamp | None = None) -> Scenario:
    """Return the scenario of ``request``. A system file is read again once it, or what it includes, has changed.

    ``read_at`` is the ``stamp`` under which the caller keeps what it makes of the scenario.

    Raises
    ------
    RequestError
        If the sizes do not fit the system, a name is unknown, or the system file has errors.
    """
    return _scenario_of(request, stamp(request) if read_at is None else read_at)


def stamp(request: Request) -> Stamp:
    """Return what tells one state of the system file of ``request`` from another; empty without one."""
    if not request.system_file:
        return ()
    main = os.path.abspath(request.system_file)
    if main not in _files_of:
        with suppress(RequestError):  # whoever reads it reports it
            _scope_of(Path(main))  # else the first answer would be kept without what the file includes
    return tuple(_stamp_of(path) for path in _files_of.get(main, (main,)))


def _stamp_of(path: str) -> tuple[str, int, int, int]:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return path, 0, 0, 0  # whoever reads it reports it
    return path, status.st_ino, status.st_mtime_ns, status.st_size


@lru_cache(MAX_KEPT)
def _scenario_of(request: Request, read_at: Stamp) -> Scenario:
    if request.system_file:
        return _in_file(request)
    head = system_text(request)
    if request.kind not in COLLECTIVE_PATTERNS:
        with suppress(CompileError):  # what is wrong is told of the text with its numbers
            return _of_sizes(request, head)
    return _compiled(request_text(request, request.ranks, head=head), "<request>", WORKLOAD)


def _of_sizes(request: Request, head: str) -> Scenario:
    """Compile a text with parameters for sizes, which is read once for all requests that differ in these alone."""
    sizes = {f"size_{key}": number for key, number in _sizes(request, request.ranks).items()}
    names = {key.removeprefix("size_"): key for key in sizes}
    text = request_text(request, request.ranks, head=head + "".join(f"param {key} = 8\n" for key in sizes), sizes=names)
    settings = tuple((key, str(number)) for key, number in sizes.items())
    return compiler_of(text, "<request>")(settings).scenario(WORKLOAD)


def _in_file(request: Request) -> Scenario:
    """Compile a text that includes the system file, as if it lay beside it."""
    file = Path(os.path.abspath(request.system_file))
    if '"' in file.name or "\\" in file.name:
        raise RequestError(Code.MGS120, "system_file", f"'{file.name[:64]}' cannot be included: rename it")
    scope = _scope_of(file)
    systems, taken = scope.names(Kind.SYSTEM), scope.names(*Kind)
    system = request.system or next(iter(systems), "")
    if system not in systems:
        hint = did_you_mean(system, systems) or (f"systems are: {listing(systems)}" if systems else "it declares none")
        raise RequestError(Code.MGS203, "system", f"'{system[:64]}' is not in {file.name}", hint)
    head, path = f'include "{file.name}"\n', str(file.with_name(f"{WORKLOAD}.mgs"))
    name = next(free for idx in count() if (free := WORKLOAD + "_" * idx) not in taken)
    ranks = _compiled(f"{head}{_ANY.format(name=name, system=system)}", path, name).num_ranks
    return _compiled(request_text(request, ranks, name, system, head), path, name)


def _scope_of(file: Path) -> Scope:
    """Read a system file, and remember which files it was read from."""
    report = Report()
    with report.trial():
        scope = load(read_source(file, report), report)
    if report.has_errors:
        raise _request_error(CompileError(report.diagnostics))
    if len(_files_of) >= MAX_KEPT:
        _files_of.clear()
    _files_of[str(file)] = (str(file), *sorted(map(str, scope.files - {file})))
    return scope


# A workload that fits every system.
_ANY = "workload {name} on {system} {{ x = tensor bf16[16, 16]; y = gemm(x, x) }}"


def _compiled(text: str, path: str, name: str) -> Scenario:
    try:
        return compile_text(text, path).scenario(name)
    except CompileError as error:
        raise _request_error(error) from None


# Errors of a text that was written here: the field that they are about.
_FIELDS = {
    Code.MGS208: "implementations",
    Code.MGS401: "engines",
    Code.MGS404: "ranks",
    Code.MGS405: "dtype",
    Code.MGS420: "ranks",
    Code.MGS505: "schedules",
    Code.MGS511: "schedules",
}


def _request_error(error: CompileError) -> RequestError:
    """Return the first error; its place is told where it is a file's."""
    first = error.first
    path, line = first.span.source.path, first.span.location.line
    in_file = Path(path).name != f"{WORKLOAD}.mgs" and path != "<request>"
    at = f"{Path(path).name}:{line}: " if in_file and first.span.source.text else ""
    field = "system_file" if in_file else _FIELDS.get(first.code, "request")
    return RequestError(first.code, field, at + first.message, first.hint)
