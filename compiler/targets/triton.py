"""Write a plan as a Python file: a persistent Triton GEMM kernel, its tables, and the copies beside it.

The text of ``tile_tables.py`` and ``host_steps.py`` goes into the file, so that it needs nothing of Magus.
"""

from collections.abc import Mapping
from importlib.resources import files
from math import gcd

from ... import __version__
from ..ir import Pattern, Scenario, Schedule
from ..planfile.to_json import plan_document
from ..planning.build import ScheduleError
from ..text.printable import printable
from .gemm_program import GemmProgram, NotExpressed, gemm_programs
from .kernel_rewrite import RewrittenKernel
from .refusals import not_expressed, reject_slices, reject_triton

MARK = "# Copied into files.\n"
VECTOR = 16
"""Elements to which loads of a vector are aligned, at most; no block of a kernel is smaller."""
IMPORTS = """from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import triton
import triton.language as tl
"""


OWN_CALL = """
    tables = tables_of(GROUPS[rank], BLOCK_M, BLOCK_N, PROGRAMS)
    tiles, starts, waits = (torch.tensor(each or [0], dtype=torch.int32, device=...) for each in tables)
    plan_gemm[(PROGRAMS,)](
        a, b, c, partial, tiles, starts, waits, flags, epoch,
        a.stride(0), b.stride(0), c.stride(0), partial.stride(0),
        BLOCK_M=..., BLOCK_N=..., BLOCK_K=..., SLICED=SLICED, ALIGNED=ALIGNED,
    )

Blocks are powers of two, 16 at least. BUFFERS has the shapes; rows are contiguous, and a multiple of 16 elements apart.
partial is float32 with the shape of c where SLICED, any tensor else. flags is an int32 tensor of len(FLAGS[rank]), zero
before the first call and not reset; for other blocks begin again with zeros and epoch 1.
"""
REWRITTEN_CALL = """
    check_whole_tiles(GROUPS[rank], {block_m}, {block_n}, *BUFFERS["c"])
    tables = tables_of(GROUPS[rank], {block_m}, {block_n}, PROGRAMS)
    tiles, starts, waits = (torch.tensor(each or [0], dtype=torch.int32, device=...) for each in tables)
    {name}[(PROGRAMS,)](tiles, starts, waits, flags, epoch, ...)  # then what it took before

The kernel was rewritten: its tiles come from the tables. BUFFERS has the shapes of a, b and c, its matrices. flags is
an int32 tensor of len(FLAGS[rank]), zero before the first call and not reset; for other blocks begin again with zeros
and epoch 1.
"""


def triton_text(
    scenario: Scenario, schedule: Schedule, rank: int | None = None, kernel: RewrittenKernel | None = None
) -> str:
    """Return the file, with the tables of all ranks or of ``rank``; ``kernel`` takes the place of the shipped kernel.

    Raises
    ------
    ScheduleError
        If the file cannot say what the plan does.
    """
    unfit = reject_triton(scenario, schedule) or (reject_slices(scenario, schedule) if kernel is not None else None)
    if unfit is not None:
        raise ScheduleError(unfit)
    try:
        programs = gemm_programs(scenario, schedule)
    except NotExpressed as error:
        raise ScheduleError(not_expressed(str(error))) from None
    shown = {number: programs[number] for number in (range(scenario.num_ranks) if rank is None else (rank,))}
    parts = (
        _head(scenario, schedule, OWN_CALL if kernel is None else _call_of(kernel)),
        IMPORTS,
        _constants(scenario, schedule, programs),
        _embedded("tile_tables.py"),
        _embedded("host_steps.py"),
        _data("FLAGS", "What the flags of each rank say.", {number: each.flags for number, each in shown.items()}),
        _data("GROUPS", "The tiles of each rank, in order.", {number: each.groups for number, each in shown.items()}),
        _data("STEPS", "What the host of each rank does.", {number: each.steps for number, each in shown.items()}),
        _resource("triton_kernel.py.txt") if kernel is None else kernel.text,
    )
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _call_of(kernel: RewrittenKernel) -> str:
    block_m, block_n = kernel.blocks
    return REWRITTEN_CALL.format(name=kernel.name, block_m=block_m, block_n=block_n)


def _head(scenario: Scenario, schedule: Schedule, call: str) -> str:
    workload, shape = scenario.workload, scenario.workload.gemm
    assert shape is not None, "a GEMM is all that is written"
    lines = [
        "A GEMM in the tile order of a plan, beside its copies.",
        "",
        f"written by: Magus {__version__}, magus plan --format triton",
        f"workload:   {workload.name}: {workload.label}, {shape.text} at each of {scenario.num_ranks} ranks",
        f"schedule:   {printable(schedule.expression)}",
        f"plan:       {plan_document(scenario, schedule)['hash']}",
        f"copies:     {schedule.engine}",
        "",
        *_resource("triton_head.txt").replace("{call}", call.strip("\n")).splitlines(),
    ]
    return "\n".join(f"# {line}".rstrip() for line in lines)


def _constants(scenario: Scenario, schedule: Schedule, programs: tuple[GemmProgram, ...]) -> str:
    shape = scenario.workload.gemm
    assert shape is not None, "a GEMM is all that is written"
    groups = [group for program in programs for group in program.groups]
    edges = [edge for group in groups for region in group.regions for edge in (*region[2:], *group.k)]
    k_slices, aligned = {group.k for group in groups}, gcd(VECTOR, *edges)
    part_rows = max(program.part_rows for program in programs)
    buffers = _buffers(scenario.workload.pattern, shape.m, shape.n, shape.k, part_rows)
    return "\n".join(
        [
            f"RANKS = {scenario.num_ranks}",
            f"PROGRAMS = {schedule.compute_sms}  # SMs that the copies of the plan leave",
            f"SLICED = {len(k_slices) > 1}  # whether k is cut, so that tiles add up in the buffer partial, float32",
            f"ALIGNED = {aligned}  # divides every column and every edge of a slice of k",
            f"BUFFERS = {buffers!r}  # rows and columns",
        ]
    )


def _buffers(pattern: Pattern, m: int, n: int, k: int, part_rows: int) -> dict[str, tuple[int, int]]:
    """Return the shapes of the buffers of a rank."""
    if pattern.consumes:
        sent = {"x": (m, k)} if pattern.exchanges else {}
        return {**sent, "a": (m, k), "b": (k, n), "c": (m, n)}
    parts = {"parts": (part_rows, n)} if pattern.sums else {}
    return {"a": (m, k), "b": (k, n), "c": (m, n), **parts, "y": (m, n)}


def _data(name: str, comment: str, rows_by_rank: Mapping[int, tuple[object, ...]]) -> str:
    lines = [f"# {comment}", f"{name}: dict[int, tuple[Any, ...]] = {{"]
    for rank, rows in rows_by_rank.items():
        lines += [f"    {rank}: (", *(f"        {row!r}," for row in rows), "    ),"]
    return "\n".join([*lines, "}"])


def _embedded(name: str) -> str:
    return _resource(name).partition(MARK)[2]


def _resource(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
