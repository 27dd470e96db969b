"""From a request to its scenario."""

import os
from contextlib import suppress
from functools import lru_cache
from itertools import count
from pathlib import Path

from ..codes import Code
from ..ir import GraphScenario
from ..pipeline import compile_text
from ..text.diagnostics import CompileError, Report, did_you_mean, listing
from ..text.load import load, read_source
from ..text.names import Kind, Scope
from .errors import RequestError
from .request import Request
from .text import WORKLOAD, request_text, system_text

MAX_KEPT = 1024

Stamp = tuple[tuple[str, int, int, int], ...]
"""Path, number, time of change and size of each file that a scenario was read from."""

_files_of: dict[str, tuple[str, ...]] = {}
"""The files that a system file was read from last; they are others only once one of them has changed."""


def scenario_of(request: Request, read_at: Stamp | None = None) -> GraphScenario:
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
def _scenario_of(request: Request, read_at: Stamp) -> GraphScenario:
    if request.system_file:
        return _in_file(request)
    return _compiled(request_text(request, request.ranks, head=system_text(request)), "<request>", WORKLOAD)


def _in_file(request: Request) -> GraphScenario:
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
    head, beside = f'include "{file.name}"\n', str(file.with_name(f"{WORKLOAD}.mgs"))
    name = next(free for idx in count() if (free := WORKLOAD + "_" * idx) not in taken)
    ranks = _compiled(f"{head}{_ANY.format(name=name, system=system)}", beside, name).num_ranks
    return _compiled(request_text(request, ranks, name, system, head), beside, name)


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


def _compiled(text: str, path: str, name: str) -> GraphScenario:
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
