"""Attention, MLA and experts of a mixture as parts of a fit: the rows of ``magus validate``, each of one kernel."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from ....compiler.ir import AttentionModel, DType, Gpu
from ....compiler.ir.operations.attention import TRTLLM
from ..tables.attention import FITTED, FITTED_MLA, FITTED_WIDE, AttentionRow, attention_rows, attention_us
from ..tables.csv_rows import left_out_lines, tables_of
from ..tables.experts import DTYPES, EVEN, PATTERNS, ExpertRow, expert_rows
from ..validate.report import kept_rows
from .fitting import Constant, ConstantUnit, Floats
from .parts import FittedRow, ProfilePart, fit_rows

_Number = tuple[str, str, ConstantUnit, float, float]
ATTENTION: tuple[_Number, ...] = (
    ("start", "start_ticks", ConstantUnit.TIME, 0.1, 100),
    ("unit", "unit_ticks", ConstantUnit.TIME, 0.01, 100),
    ("mma", "mma_fraction", ConstantUnit.SHARE, 0.02, 1),
    ("softmax", "softmax_fraction", ConstantUnit.SHARE, 0.02, 1),
    ("hbm", "hbm_fraction", ConstantUnit.SHARE, 0.05, 1),
    *((f"decode_{each}", f"decode_{each}_ticks", ConstantUnit.TIME, 0.01, 100) for each in ("start", "unit", "block")),
)
DECODE_HBM: _Number = ("decode_hbm", "decode_hbm_fraction", ConstantUnit.SHARE, 0.05, 1)
TOKEN: _Number = ("token", "token_ticks", ConstantUnit.TIME, 1e-6, 0.1)
HEAD: _Number = ("decode_head", "decode_head_ticks", ConstantUnit.TIME, 0.01, 100)
ALONE: tuple[_Number, ...] = (
    *((f"decode_{each}", f"decode_{each}_ticks", ConstantUnit.TIME, 0.01, 100) for each in ("alone", "first", "split")),
    ("decode_again", "decode_again_fraction", ConstantUnit.SHARE, 0.05, 10),
)
GROUPED: tuple[_Number, ...] = (
    ("start", "start_ticks", ConstantUnit.TIME, 0.1, 100),
    ("mma", "mma_fraction", ConstantUnit.SHARE, 0.02, 1),
    ("hbm", "hbm_fraction", ConstantUnit.SHARE, 0.05, 1),
    ("tile", "tile_ticks", ConstantUnit.TIME, 0.005, 100),
    ("exponent", "exponent", ConstantUnit.NUMBER, 1.1, 12),
    ("rows", "rows_fraction", ConstantUnit.SHARE, 0.02, 1),
)
SORT: _Number = ("sort", "sort_ticks", ConstantUnit.TIME, 0.01, 100)
CHOICE: _Number = ("choice", "choice_ticks", ConstantUnit.TIME, 1e-6, 0.1)
EPILOGUE: _Number = ("epilogue", "epilogue_ticks", ConstantUnit.TIME, 0.005, 100)
ROW: _Number = ("row", "row_ticks", ConstantUnit.TIME, 1e-5, 0.1)
GROUPED_PARTS = {dtype: "grouped" if dtype is DType.BF16 else f"grouped {dtype.value}" for dtype in DTYPES.values()}
ATTENTION_PARTS = ("attention", "mla", TRTLLM, "wide")
KERNEL_PARTS = (*ATTENTION_PARTS, *GROUPED_PARTS.values())

Times = Mapping[tuple[int | str, ...], Callable[[Gpu], float]]


def kernel_parts(folder: Path, name: str, gpu: Gpu, left_out: list[str]) -> Iterator[ProfilePart]:
    """Yield the parts of which ``folder`` has rows of ``name``; append to ``left_out`` why other rows are not used.

    Raises
    ------
    MeasuredError
        If a table cannot be read.
    """
    attention = [row for row in kept_rows(attention_rows(folder), left_out) if row.gpu == name]
    kernels = (FITTED.get(name, ""), FITTED_MLA, TRTLLM, FITTED_WIDE)
    for block, fitted in zip(ATTENTION_PARTS, kernels, strict=True):
        of_block = [row for row in attention if _block(row) == block]
        yield _attention(block, gpu, list(kept_rows(_of_one_kernel(of_block, fitted), left_out)))
    experts = [
        (path.name, row)
        for path in tables_of(folder, PATTERNS)
        for row in kept_rows(expert_rows(path), left_out)
        if row.gpu == name
    ]
    rows = list(kept_rows(_of_known_experts(experts, gpu), left_out))
    for dtype in GROUPED_PARTS:
        yield _grouped(dtype, gpu, [(file, row) for file, row in rows if row.dtype is dtype])


def _block(row: AttentionRow) -> str:
    """The block of a profile whose constants are of the kernel of ``row``."""
    of = row.shape.by or "attention"
    return "mla" if row.shape.values is not None else "wide" if row.is_wide else of


def _of_one_kernel(rows: Sequence[AttentionRow], fitted: str) -> Iterator[AttentionRow | str]:
    """Yield the rows of the kernel ``fitted``, or of the only one there is: constants are those of one kernel."""
    kernels = {row.kernel for row in rows}
    own = {each for each in kernels if fitted and each.startswith(fitted)}
    chosen, left_out = own or (kernels if len(kernels) == 1 else set()), Counter[tuple[str, str]]()
    for row in rows:
        if row.kernel not in chosen:
            wanted = f"constants are those of {fitted}" if own else "keep the rows of one kernel"
            left_out[row.file, f"of the kernel {row.kernel}; {wanted}"] += 1
        elif row.shape.window is not None:
            left_out[row.file, "windows: no constants are fitted to them"] += 1
        else:
            yield row
    yield from _reported(left_out)


def _of_known_experts(rows: Sequence[tuple[str, ExpertRow]], gpu: Gpu) -> Iterator[tuple[str, ExpertRow] | str]:
    """Yield rows with even loads of kernels that constants are of."""
    left_out = Counter[tuple[str, str]]()
    for file, row in rows:
        if not row.is_fitted:
            left_out[file, f"of the kernel {row.kernel}, whose constants are not known"] += 1
        elif not gpu.peak(row.dtype):
            left_out[file, f"{gpu.name} has no peak rate for {row.dtype.value}"] += 1
        elif row.law != EVEN:
            left_out[file, "drawn loads of one rank"] += 1
        else:
            yield file, row
    yield from _reported(left_out)


def _reported(left_out: Counter[tuple[str, str]]) -> Iterator[str]:
    """Yield a line for each file and reason for which rows are left out."""
    for (file, reason), count in left_out.items():
        yield from left_out_lines(file, {reason: count})


def _attention(block: str, gpu: Gpu, found: Sequence[AttentionRow]) -> ProfilePart:
    model: AttentionModel | None = getattr(gpu, block)
    times: dict[tuple[int | str, ...], Callable[[Gpu], float]] = {}
    rows = []
    for row in found:
        key = (f"{row.phase}, {row.shape.batch} x {row.shape.text}, {row.shape.kv_heads} of keys",)
        times[key] = partial(attention_us, shape=row.shape)
        rows.append(FittedRow(f"{block} {row.phase}", key, row.time_us, row.file, least_us=row.least_us(gpu)))
    optional = (DECODE_HBM, TOKEN, HEAD, *(ALONE if model is not None and model.decode_alone_ticks else ()))
    stated = [number for number in optional if model is not None and getattr(model, number[1])]
    numbers = (*ATTENTION, *stated)
    return _part(block, (block,), numbers, rows, times)


def _grouped(dtype: DType, gpu: Gpu, found: Sequence[tuple[str, ExpertRow]]) -> ProfilePart:
    times: dict[tuple[int | str, ...], Callable[[Gpu], float]] = {}
    name, rows = GROUPED_PARTS[dtype], []
    for file, row in found:
        key = (row.label,)
        times[key] = partial(row.us, rows=row.even_rows)
        rows.append(FittedRow(f"{name}, {row.load}", key, row.time_us, file, least_us=row.least_us(gpu)))
    achieved = gpu.hbm.achieved_bytes_per_s / gpu.hbm.peak_bytes_per_s
    numbers = [(*each[:4], achieved) if each[0] == "hbm" else each for each in GROUPED]  # memory serves at that rate
    model = gpu.grouped_of(dtype)
    stated = [each for each in (CHOICE, SORT, EPILOGUE, ROW) if model is not None and getattr(model, each[1])]
    return _part(name, tuple(name.split()), (*numbers, *stated), rows, times)


def _part(
    name: str, block: tuple[str, ...], numbers: Sequence[_Number], rows: Sequence[FittedRow], times: Times
) -> ProfilePart:
    """The part of ``rows``, whose constants are ``numbers`` of ``block``, and their ``times`` by a profile."""
    constants = tuple(
        Constant(".".join((*block, word)), (*block, attribute), unit, low, high)
        for word, attribute, unit, low, high in numbers
    )

    def predict(gpu: Gpu, some: Sequence[FittedRow]) -> Floats:
        return np.array([times[row.key](gpu) for row in some])

    return ProfilePart(name, tuple(rows), predict, partial(fit_rows, constants, predict, ()), len(constants))
