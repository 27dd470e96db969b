"""Write a plan as a Python file: a persistent Triton GEMM kernel, its tables, and the copies beside it.

The text of ``tile_tables.py`` goes into the file, so that it needs nothing of Magus.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from math import gcd

from ... import __version__
from ..codes import Code
from ..ir import (
    Adds,
    GemmShape,
    Kernels,
    OpCase,
    OpPlan,
    Pattern,
    Reach,
    Rejection,
    Step,
    TileGroup,
    Transfer,
    Wait,
    cutting_of,
)
from ..planfile.write import op_plan_document
from ..planning.build import ScheduleError
from ..text.diagnostics import printable
from ..verify.happens_before import deadlock_faults
from .gemm_program import GemmProgram, NotExpressed, check_expressed, gemm_programs
from .kernel_rewrite import RewrittenKernel
from .tile_tables import check_whole_tiles

# Which plans one persistent GEMM kernel with copies beside it cannot carry out, and why.

PATTERNS = (Pattern.AG_GEMM, Pattern.A2A_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR, Pattern.GEMM_A2A)
_ELSE = "magus plan --format json writes any plan"


def reject_triton(scenario: OpCase, schedule: OpPlan) -> Rejection | None:
    """Why ``schedule`` is no Triton kernel with copies beside it, None if it is."""
    unfit = _reject_workload(scenario) or _reject_tile(schedule)
    return unfit or _reject_steps(scenario, schedule) or _reject_order(scenario, schedule)


def _reject_workload(scenario: OpCase) -> Rejection | None:
    workload = scenario.shape
    patterns = ", ".join(pattern.value for pattern in PATTERNS)
    if workload.then is not None or not isinstance(workload.gemm, GemmShape) or workload.pattern not in PATTERNS:
        return _rejection(f"{workload.name} is {workload.label}, and the kernel is one GEMM", f"it does {patterns}")
    gemm = workload.gemm
    if gemm.dtype.block > 1 or gemm.right is not gemm.dtype:
        return _rejection(f"the kernel multiplies tiles as they are, and {gemm.text} has scales or two types", _ELSE)
    if workload.uneven:
        return _rejection(f"{workload.name} sends blocks of different sizes", "leave rows=[...] out")
    if workload.by_columns or workload.loads:
        what = "columns" if workload.by_columns else "rows that differ in number"
        message = f"{workload.name} is summed in parts of {what}, and the copies here move equal blocks of rows"
        return _rejection(message, f"rows that are a multiple of {scenario.num_ranks}, or {_ELSE}")
    if cutting_of(workload).adds is Adds.BLOCKS:
        return _rejection(f"{workload.name} has blocks side by side in the inner dimension", _ELSE)
    return None


def _reject_tile(schedule: OpPlan) -> Rejection | None:
    if schedule.tactics.split_k > 1:
        return _rejection("the kernel computes a tile in one program, and split_k in several", "leave split_k out")
    odd = [side for side in schedule.tactics.tile if side & (side - 1)]
    return _rejection(f"blocks of Triton are powers of two, and the tile has {odd[0]}", "another tile") if odd else None


def _reject_steps(scenario: OpCase, schedule: OpPlan) -> Rejection | None:
    if schedule.engine.by_tiles:
        return _rejection(
            f"{schedule.engine} stores or pulls from tiles, the kernel stores at its own rank", "engine=dma or sm(8)"
        )
    for rank in range(schedule.period(scenario.num_ranks)):
        slices: set[tuple[object, ...]] = set()
        for step in schedule.steps_of(rank):
            if isinstance(step, Transfer) and step.reach is Reach.ALL:
                return _rejection(f"{step.name} goes through the switch, to or from all", "another algorithm than nvls")
            if isinstance(step, Transfer) and step.peer_after:
                return _rejection(f"{step.name} waits for its peer, copies here for their own rank", "put to forward")
            if isinstance(step, Transfer) and step.reduce:
                return _rejection(f"{step.name} adds where it arrives, copies here do not", "engine=dma")
            if isinstance(step, TileGroup):
                unfit = _reject_slice(step, slices)
                if unfit is not None:
                    return unfit
    return None


def _reject_slice(step: TileGroup, computed: set[tuple[object, ...]]) -> Rejection | None:
    """Tiles of one region add up in the program that computes them: slices have the same regions."""
    regions = {(region.owner, region.rows, region.cols) for region in step.regions}
    if step.accumulate and not regions <= computed:
        return _rejection(f"{step.name} adds to tiles that no group before it has computed alike", _ELSE)
    computed |= regions
    return None


def _reject_order(scenario: OpCase, schedule: OpPlan) -> Rejection | None:
    """The groups of all streams go into one kernel, in the order in which they are issued."""
    one_kernel = replace(schedule.tactics, kernel=Kernels.PERSISTENT, wait=Wait.EVENT)
    merged = replace(
        schedule,
        steps=_in_one_stream(schedule.steps),
        by_rank=tuple(map(_in_one_stream, schedule.by_rank)),
        overrides=tuple(replace(each, step=_in_one_stream((each.step,))[0]) for each in schedule.overrides),
        tactics=one_kernel,
    )
    for fault in deadlock_faults(scenario, merged):
        return _rejection(f"the kernels cannot be one kernel: {fault.message}", "streams=1, or --format json")
    return None


def _in_one_stream(steps: Iterable[Step]) -> tuple[Step, ...]:
    return tuple(replace(step, stream=0) if isinstance(step, TileGroup) else step for step in steps)


def _reject_slices(scenario: OpCase, schedule: OpPlan) -> Rejection | None:
    """Why a kernel that computes each tile at once cannot carry out ``schedule``, None if it can."""
    for rank in range(schedule.period(scenario.num_ranks)):
        for step in schedule.steps_of(rank):
            if isinstance(step, TileGroup) and step.accumulate:
                hint = "a schedule that cuts rows, such as hetero_fused_1d; or leave --kernel out"
                return _rejection(f"{step.name} adds a slice of the inner dimension, the kernel takes all of it", hint)
    return None


def _rejection(message: str, hint: str) -> Rejection:
    return Rejection(Code.MGS541, message, hint)


MARK = "# Copied into files.\n"
_TAKEN = "  # the configuration of the kernel's autotuning that was taken"
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
    {name}[(PROGRAMS,)](tiles, starts, waits, flags, epoch, ...{more})  # then what it took before

The kernel was rewritten: its tiles come from the tables. BUFFERS has the shapes of a, b and c, its matrices. flags is
an int32 tensor of len(FLAGS[rank]), zero before the first call and not reset; for other blocks begin again with zeros
and epoch 1.
"""


def unwritable(scenario: OpCase, schedule: OpPlan) -> Rejection | None:
    """Why no file says what the plan does, None if one does."""
    unfit = reject_triton(scenario, schedule)
    if unfit is None:
        try:
            check_expressed(scenario, schedule)
        except NotExpressed as error:
            return _rejection(str(error), _ELSE)
    return unfit


def _programs(scenario: OpCase, schedule: OpPlan, kernel: RewrittenKernel | None = None) -> tuple[GemmProgram, ...]:
    """The program of each rank, which a ``kernel`` of the user can carry out if there is one."""
    ScheduleError.require(reject_triton(scenario, schedule))
    if kernel is not None:
        ScheduleError.require(_reject_slices(scenario, schedule))
    try:
        programs = gemm_programs(scenario, schedule)
        if kernel is not None:
            _check_tiles(scenario, schedule, kernel, programs)
    except NotExpressed as error:
        raise ScheduleError(_rejection(str(error), _ELSE)) from None
    return programs


def triton_text(
    scenario: OpCase, schedule: OpPlan, rank: int | None = None, kernel: RewrittenKernel | None = None
) -> str:
    """Return the file, with the tables of all ranks or of ``rank``; ``kernel`` takes the place of the shipped kernel.

    Raises
    ------
    ScheduleError
        If the file cannot say what the plan does.
    """
    programs = _programs(scenario, schedule, kernel)
    shown = {number: programs[number] for number in (range(scenario.num_ranks) if rank is None else (rank,))}
    parts = (
        _head(scenario, schedule, _own_call(schedule) if kernel is None else _call_of(scenario, kernel)),
        IMPORTS,
        _constants(scenario, schedule, programs),
        "" if kernel is None or kernel.config is None else f"CONFIG = {dict(kernel.config.settings)!r}{_TAKEN}",
        _embedded("tile_tables.py"),
        _data("FLAGS", "What the flags of each rank say.", {number: each.flags for number, each in shown.items()}),
        _data("GROUPS", "The tiles of each rank, in order.", {number: each.groups for number, each in shown.items()}),
        _data("STEPS", "What the host of each rank does.", {number: each.steps for number, each in shown.items()}),
        _resource("triton_kernel.py.txt") if kernel is None else kernel.text,
    )
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _own_call(schedule: OpPlan) -> str:
    """The call of the shipped kernel, with the blocks that the plan says, else with those that a user picks."""
    blocks = "BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N" if schedule.tactics.tile else "BLOCK_M=..., BLOCK_N=..."
    return OWN_CALL.replace("BLOCK_M=..., BLOCK_N=...", blocks)


def _call_of(scenario: OpCase, kernel: RewrittenKernel) -> str:
    given = {} if kernel.config is None else kernel.config.settings
    block_m, block_n = (f'CONFIG["{name}"]' if name in given else name for name in kernel.blocks)
    more = ", **CONFIG" if given else ""
    call = REWRITTEN_CALL.format(name=kernel.name, block_m=block_m, block_n=block_n, more=more)
    pattern = scenario.shape.pattern
    if pattern.consumes:
        call += "".join(f"\n{each.message}: {each.hint}.\n" for each in kernel.by_row)
    if pattern.sums:
        call += (
            "\nWhat the kernel does to a tile after the product it does at each rank, before the sum over the ranks.\n"
        )
    return call


def _check_tiles(scenario: OpCase, schedule: OpPlan, kernel: RewrittenKernel, programs: Sequence[GemmProgram]) -> None:
    """Refuse a configuration whose tiles are not those of the plan, or do not divide its regions."""
    given, tile = {} if kernel.config is None else kernel.config.settings, schedule.tactics.tile
    block_m, block_n = (given.get(name, size) for name, size in zip(kernel.blocks, tile or (None, None), strict=True))
    if tile and (block_m, block_n) != tile:
        message = f"the configuration has tiles of {block_m} x {block_n}, and the plan of {tile[0]} x {tile[1]}"
        raise NotExpressed(message)
    shape = scenario.shape.gemm
    if isinstance(block_m, int) and isinstance(block_n, int) and shape is not None:
        try:
            for program in programs:
                check_whole_tiles(program.groups, block_m, block_n, shape.m, shape.n)
        except ValueError as error:
            raise NotExpressed(str(error)) from None


def _head(scenario: OpCase, schedule: OpPlan, call: str) -> str:
    workload, shape = scenario.shape, scenario.shape.gemm
    assert shape is not None, "a GEMM is all that is written"
    lines = [
        "A GEMM in the tile order of a plan, beside its copies.",
        "",
        f"written by: Magus {__version__}, magus plan --format triton",
        f"workload:   {workload.name}: {workload.label}, {shape.text} at each of {scenario.num_ranks} ranks",
        f"schedule:   {printable(schedule.expression)}",
        f"plan:       {op_plan_document(scenario, schedule)['hash']}",
        f"copies:     {schedule.engine}",
        "",
        *_resource("triton_head.txt").replace("{call}", call.strip("\n")).splitlines(),
    ]
    return "\n".join(f"# {line}".rstrip() for line in lines)


def _constants(scenario: OpCase, schedule: OpPlan, programs: tuple[GemmProgram, ...]) -> str:
    shape = scenario.shape.gemm
    assert shape is not None, "a GEMM is all that is written"
    groups = [group for program in programs for group in program.groups]
    edges = [edge for group in groups for region in group.regions for edge in (*region[2:], *group.k)]
    tile = schedule.tactics.tile
    k_slices, aligned = {group.k for group in groups}, gcd(VECTOR, *edges)
    part_rows = max(program.part_rows for program in programs)
    buffers = _buffers(scenario.shape.pattern, shape.m, shape.n, shape.k, part_rows)
    return "\n".join(
        [
            f"RANKS = {scenario.num_ranks}",
            f"PROGRAMS = {schedule.compute_sms}  # SMs that the copies of the plan leave",
            *([f"BLOCK_M, BLOCK_N = {tile[0]}, {tile[1]}  # the tile of the plan"] if tile else []),
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
