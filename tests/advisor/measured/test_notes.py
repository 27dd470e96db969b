"""Numbers in the notes of ``magus validate`` are those of the tables, of the profiles and of its own figures.

So are those that implementations of the library state of their rows.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

import numpy as np
import pytest

from magus.advisor.implementations.offers import offers_of
from magus.advisor.measured.calibrate.parts import gemm_parts
from magus.advisor.measured.tables import gemm_times
from magus.advisor.measured.tables.attention import FITTED, AttentionRow, attention_rows
from magus.advisor.measured.tables.csv_rows import TableComparison, in_odd_half, tables_of
from magus.advisor.measured.tables.experts import (
    CHOSEN_US,
    DTYPES,
    EVEN,
    FUSED_LAWS,
    PATTERNS,
    UNGATED,
    ExpertRow,
    chosen_us,
    expert_rows,
    fused_layer_comparisons,
)
from magus.advisor.measured.tables.fused import FusedPart, scenario_on
from magus.advisor.measured.tables.gemm import LONG_ROWS, GemmTable, gemm_tables, left_out_of_fits, profile_of
from magus.advisor.measured.tables.gemm_times import LOOPED_READS, Floats, Ints, gemm_ticks, memory_in_loop
from magus.advisor.measured.tables.implementations import implementation_rows
from magus.advisor.measured.validate.targets import notes_of
from magus.compiler.ir import TICKS_PER_US, DType, Gpu, Pattern, Scenario
from magus.compiler.ir.operations.attention import TRTLLM
from magus.compiler.resolve.expect.expectation import Verdict
from tests.helpers.figures import as_written
from tests.helpers.paths import ROOT
from tests.helpers.some import some

DATA = os.environ.get("MAGUS_MEASURED_DATA", "")
IMPLEMENTATIONS = ROOT / "compiler" / "library" / "implementations"
ON_TABLES = pytest.mark.skipif(not DATA, reason="needs the measured tables")


def said(part: str, pattern: str) -> list[float]:
    """The numbers that ``pattern`` finds in the one note of a part that has it."""
    (found,) = filter(None, (re.search(pattern, note) for note in notes_of(part)))
    return [float(each) for each in found.groups()]


def gpu_of(name: str) -> Gpu:
    gpu = profile_of(name)
    assert gpu is not None
    return gpu


@cache
def gemms() -> tuple[GemmTable, ...]:
    return tuple(table for table in gemm_tables(Path(DATA)) if isinstance(table, GemmTable))


def held_out(name: str, dtype: DType, *, large: bool) -> list[float]:
    """Errors in percent of the GEMMs that no constant was fitted to, of those that are large or the others."""
    gpu = gpu_of(name)
    (table,) = (each for each in gemms() if each.gpu == name and each.dtype is dtype)
    (part,) = (each for each in gemm_parts(gpu, [table]) if each.rows)
    left_out = left_out_of_fits(table)
    rows = [row for row in part.rows if row.first is large and row.key in left_out]
    found = part.predict(gpu, rows)
    return [100 * abs(us / row.measured - 1) for us, row in zip(found, rows, strict=True)]


@pytest.mark.slow
@ON_TABLES
def test_gemms_held_out_of_the_fit_are_as_far_off_as_is_said() -> None:
    pattern = r"have ([\d.]+)% \(A100\), ([\d.]+)% \(H100\) and ([\d.]+)% \(B200\)\."
    errors = [mean(held_out(name, DType.BF16, large=True)) for name in ("A100", "H100", "B200")]

    assert [round(each, 1) for each in errors] == said("errors", pattern)


@pytest.mark.slow
@ON_TABLES
def test_gemms_of_fp8_held_out_of_the_fit_are_as_far_off_as_is_said() -> None:
    large = r"n, k >= 512 have ([\d.]+)% \(H100\) and ([\d.]+)% \(B200\), where"
    small = r"Smaller ones have ([\d.]+)% and ([\d.]+)%"
    for pattern, is_large in ((large, True), (small, False)):
        errors = [mean(held_out(name, DType.FP8, large=is_large)) for name in ("H100", "B200")]
        assert [round(each, 1) for each in errors] == said("errors", pattern)


def input_in_l2(gpu: Gpu, shapes: Ints, dtype: DType) -> Floats:
    """The time in memory where the L2 holds the input alone, which the kernel before has written."""
    m, n, k = shapes.T
    all_bytes = (m * k + n * k + m * n) * dtype.mean_bytes
    read, written = (m + n) * k, m * n
    found: Floats = np.where(
        all_bytes <= gpu.l2.size_bytes, (m * k / LOOPED_READS + n * k + written) / (read + written), 1.0
    )
    return found


@pytest.mark.slow
@ON_TABLES
def test_long_gemms_by_a_layer_are_as_far_off_as_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    by_gpu = r"([\d.]+)% \(A100\), ([\d.]+)% \(H100\), ([\d.]+)% \(B200\) and ([\d.]+)% \(GB300\) off by a layer"
    cold, warm, of_input = [], [], []
    for name in ("A100", "H100", "B200", "GB300"):
        gpu = gpu_of(name)
        (table,) = (each for each in gemms() if each.gpu == name and each.dtype is DType.BF16)
        shapes = [shape for shape in left_out_of_fits(table) if shape[0] >= LONG_ROWS]
        sizes, us = np.array(shapes), np.array([table.times_us[shape] for shape in shapes])
        in_loop = memory_in_loop(gpu, sizes, DType.BF16) < 1
        off = 100 * np.abs(gemm_ticks(gpu, sizes) / TICKS_PER_US / us - 1)
        cold.append(off[~in_loop].mean())
        warm.append(off[in_loop].mean())
        with monkeypatch.context() as changed:
            changed.setattr(gemm_times, "memory_in_loop", input_in_l2)
            times_us = gemm_ticks(gpu, sizes, looped=True) / TICKS_PER_US
        of_input.append(np.abs(100 * (times_us / us - 1)).mean())

    assert [round(each, 1) for each in cold] == said("errors", by_gpu)
    assert [round(min(warm)), round(max(warm))] == said("errors", r"the others ([\d.]+)% to ([\d.]+)%")
    pattern = r"all are ([\d.]+)%, ([\d.]+)%, ([\d.]+)% and ([\d.]+)% off"
    assert [round(each, 1) for each in of_input] == said("errors", pattern)


@pytest.mark.slow
@ON_TABLES
def test_the_l2_holds_the_operands_of_as_many_gemms_as_is_said() -> None:
    def share(name: str) -> float:
        shapes = {
            shape for table in gemms() if table.gpu == name and table.dtype is DType.BF16 for shape in table.times_us
        }
        rows = [s for s in shapes if s[0] >= LONG_ROWS and not in_odd_half(f"{s[1]}/{s[2]}")]
        return 100 * float(np.mean(memory_in_loop(gpu_of(name), np.array(rows), DType.BF16) < 1))

    both, gb300, b200 = said(
        "errors", r"(\d+)% of those that were fitted to on A100 and H100, (\d+)% on GB300 and (\d+)%"
    )
    assert [round(share(name)) for name in ("A100", "H100", "GB300", "B200")] == [both, both, gb300, b200]


@pytest.mark.slow
@ON_TABLES
def test_trtllm_takes_as_much_longer_than_the_fitted_kernel_as_is_said() -> None:
    times: dict[tuple[object, ...], dict[bool, float]] = defaultdict(dict)
    for row in attention_rows(Path(DATA)):
        if isinstance(row, AttentionRow) and row.shape.values is None:
            own = row.kernel == TRTLLM
            if own or row.kernel.startswith(FITTED[row.gpu]):
                s = row.shape
                heads = s.batch, s.heads, s.kv_heads, s.q_len, s.kv_len, s.head_dim, s.window
                times[row.gpu, row.phase, *heads][own] = row.time_us

    def ratio(gpu: str, phase: str) -> float:
        alike = [each for key, each in times.items() if key[:2] == (gpu, phase) and len(each) == 2]
        return round(median(each[True] / each[False] for each in alike), 2)

    pattern = (
        r"takes ([\d.]+) \(H100\) and ([\d.]+) \(B200\) times as long as that kernel for contexts, and ([\d.]+) and "
        r"([\d.]+) times in generation"
    )
    assert said("errors", pattern) == [ratio(gpu, phase) for phase in ("context", "generation") for gpu in FITTED]


@cache
def experts() -> tuple[ExpertRow, ...]:
    found = (row for path in tables_of(Path(DATA), PATTERNS) for row in expert_rows(path))
    return tuple(row for row in found if isinstance(row, ExpertRow) and row.law == EVEN)


@pytest.mark.slow
@ON_TABLES
def test_layouts_of_nvfp4_take_as_much_longer_on_b200_as_is_said() -> None:
    times: dict[tuple[object, ...], dict[str, float]] = defaultdict(dict)
    for row in experts():
        if row.dtype is DType.NVFP4 and row.kernel == "cutlass" and not in_odd_half(row.model):
            times[row.model, row.widths, row.dealt][row.gpu] = row.time_us
    layouts: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for (model, widths, dealt), us in times.items():
        assert isinstance(dealt, tuple)
        layouts[model, widths, dealt[3]].append(us["B200"] / us["GB300"])
    ratios = [median(each) for each in layouts.values()]
    slow = [each for each in ratios if each > 1.13]
    found = [len(slow), len(ratios), round(min(slow), 2), round(max(slow), 1)]

    pattern = r"nvfp4 (\d+) of (\d+) layouts of models fitted on B200 take ([\d.]+) to ([\d.]+) times"
    assert said("errors", pattern) == found
    others = [each for layout in layouts.values() if median(layout) <= 1.13 for each in layout]
    assert said("errors", r"the others ([\d.]+) times") == [round(median(others), 2)]


def test_a_choice_takes_as_long_as_is_said() -> None:
    found = [
        model.choice_ticks / TICKS_PER_US * 1000
        for name in ("B200", "GB300")
        for dtype in (DType.BF16, DType.FP8, DType.FP8_BLOCK, DType.NVFP4)
        if (model := gpu_of(name).grouped_of(dtype)) is not None
    ]

    assert len(found) == 8
    assert said("errors", r"takes ([\d.]+) to ([\d.]+) ns each") == [round(end(found), 2) for end in (min, max)]


def test_sorting_takes_as_long_as_is_said() -> None:
    models = (gpu_of(name).grouped_of(dtype) for name in ("B200", "GB300") for dtype in DType)
    found = [each.sort_ticks / TICKS_PER_US for each in models if each is not None and each.sort_ticks]

    assert said("errors", r"source says: ([\d.]+) to ([\d.]+) us of cutlass") == [
        round(end(found), 1) for end in (min, max)
    ]


def page_rows() -> Iterator[list[str]]:
    for line in (ROOT / "docs" / "accuracy.md").read_text().splitlines():
        if line.startswith("| ") and line.endswith(" |"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def test_a_row_takes_as_long_as_is_said() -> None:
    models = (gpu_of(name).grouped_of(dtype) for name in ("H100", "B200", "GB300") for dtype in DType)
    found = [each.row_ticks / TICKS_PER_US * 1000 for each in models if each is not None and each.row_ticks]

    assert said("errors", r"row takes ([\d.]+) to ([\d.]+) ns beside") == [round(end(found), 1) for end in (min, max)]


def test_the_page_of_the_simulator_has_the_constants_of_experts() -> None:
    text = " ".join((ROOT / "docs" / "simulator.md").read_text().split())
    models = [gpu_of(name).grouped_of(dtype) for name in ("H100", "B200", "GB300") for dtype in DTYPES.values()]
    known = [each for each in some(models) if each is not None]
    figures = {
        r"a start of ([\d.]+) to ([\d.]+) us": [each.start_ticks / TICKS_PER_US for each in known],
        r"at ([\d.]+) to ([\d.]+) % of memory's": [100 * float(each.rows_fraction) for each in known],
        r"and ([\d.]+) to ([\d.]+) ns for each row": [each.row_ticks / TICKS_PER_US * 1000 for each in known],
        r"takes an SM ([\d.]+) to ([\d.]+) us": [each.epilogue_ticks / TICKS_PER_US for each in known],
        r"take ([\d.]+) to ([\d.]+) us to sort": [each.sort_ticks / TICKS_PER_US for each in known],
    }
    for pattern, values in some(list(figures.items())):
        (said_ends,) = re.findall(pattern, text)
        ends = (min(filter(None, values)), max(values))
        assert [as_written(end, each) for end, each in zip(ends, said_ends, strict=True)] == list(said_ends)


def test_the_page_of_experts_has_a_choice_by_pytorch() -> None:
    text = " ".join((ROOT / "docs" / "moe.md").read_text().split())
    start, share, power = CHOSEN_US

    assert f"{start:g} us and {share} us times thousands of tokens of a rank to the power {power} more" in text
    assert f"timed(x, takes={chosen_us(4096, 22, 512):.0f} us)" in text


def test_what_pytorch_takes_to_choose_experts_is_said() -> None:
    pattern = r"measured times: ([\d.]+) us and ([\d.]+) us times thousands of tokens to the power ([\d.]+) "

    assert said("errors", pattern) == list(CHOSEN_US)


@pytest.mark.slow
@ON_TABLES
def test_kernels_without_a_gate_are_as_far_off_as_is_said() -> None:
    rows = [row for row in experts() if row.kernel == UNGATED and in_odd_half(row.model)]

    def ratio(of: list[ExpertRow]) -> float:
        return median(row.us(gpu_of(row.gpu), row.even_rows) / row.time_us for row in some(of))

    assert {row.dealt[1:3] for row in experts() if row.kernel == UNGATED} == {(22, 512)}
    pattern = r"([\d.]+) of measured on up to 4 ranks, ([\d.]+) on 8 to 32 and ([\d.]+) on more"
    buckets = ((1, 4), (8, 32), (64, 1024))
    found = [ratio([row for row in rows if least <= row.dealt[3] <= most]) for least, most in buckets]
    assert said("errors", pattern) == [round(each, 2) for each in found]
    many = [row for row in rows if row.dtype is DType.FP8 and row.load == "more rows each"]
    slow = [100 * ratio([row for row in many if row.gpu == gpu]) - 100 for gpu in {row.gpu for row in many}]
    assert said("errors", r"too slow there, by (\d+)% to (\d+)%") == [round(min(slow)), round(max(slow))]


@pytest.mark.slow
@ON_TABLES
def test_as_many_draws_of_one_kernel_lie_outside_as_is_said() -> None:
    """Sizes that share a draw are counted as one: the median of those with many tokens."""
    draws: dict[tuple[str, str], list[TableComparison]] = defaultdict(list)
    for row in fused_layer_comparisons(Path(DATA)):
        if isinstance(row, TableComparison) and row.group in FUSED_LAWS and row.error is not None:
            draws[row.group, row.label.rpartition(", ")[2]].append(row)
    outside = [
        key
        for key, rows in draws.items()
        if mean(abs(r.measured_us / r.predicted_us - 1) > (r.error or 0) for r in rows) > 0.5
    ]

    assert said("scoreboard", r"most sizes of (\d+) of (\d+) such groups lie outside") == [len(outside), len(draws)]


def test_the_row_with_the_wrong_sign_is_promised_no_gain() -> None:
    (predicted,) = said("implementations", r"calls the predicted ([\d.]+) no gain")
    case = scenario_on("H800", 8, DType.BF16, FusedPart(Pattern.GEMM_RS, 16384, 2048, 2048))
    offers = offers_of(Scenario.of_one(case))
    offer = None if offers is None else offers.named("flux")

    assert offer is not None and offer.promise.verdict is Verdict.SERIAL
    assert round(offer.promise.speedup, 2) == predicted > 1


class Stated(NamedTuple):
    """A number of a block of a shipped implementation, as it is written, with its note."""

    name: str
    block: str
    number: float
    note: str


BLOCKS = {
    "ag_gemm": "AG+GEMM",
    "gemm_rs": "GEMM+RS",
    "gemm_ar": "GEMM+AR",
    "a2a_gemm": "dispatch",
    "gemm_a2a": "combine",
    "experts": "layer",
}


def stated(field: str) -> Iterator[Stated]:
    """What shipped implementations state of ``field``."""
    for path in sorted(IMPLEMENTATIONS.glob("*.mgs")):
        name = block = ""
        for line in path.read_text().splitlines():
            if begin := re.match(r"implementation (\w+)", line):
                name = begin[1]
            elif begin := re.match(r"  (\w+) {", line):
                block = BLOCKS.get(begin[1], begin[1])
            elif found := re.match(rf'    {field} ([\d.]+) [us%]+ @measured "(.*)"', line):
                yield Stated(name, block, float(found[1]), found[2])


def page_counts() -> dict[str, int]:
    """How many rows nothing was fitted to, by implementation and what it does where it does two things."""
    counts: dict[str, int] = defaultdict(int)
    for row in page_rows():
        if len(row) == 9 and row[1].startswith("held out, "):  # the scoreboard
            counts[row[0]] += int(row[2])
        elif row[-1] == "held out" and re.search(r" \S+\+\S+ ", row[1]):
            counts[f"{row[0]} {row[1].split()[1]}"] += 1
    return counts


def test_implementations_state_of_how_many_rows_their_error_is() -> None:
    of, counts = [each for each in stated("error") if re.match(r"\d+ rows ", each.note)], page_counts()

    assert len(of) == 22
    for each in some(of):
        found = counts.get(f"{each.name} {each.block}") or counts.get(each.name)
        assert found == int(each.note.split()[0]), each


def test_one_kernel_for_experts_states_the_errors_of_the_page() -> None:
    (kernel,) = (each for each in stated("error") if each.block == "layer")
    rows, error = next(
        (int(row[2]), float(row[4])) for row in page_rows() if row[0] == "mega_moe layer" and row[1] == "fit, small"
    )

    assert int(re.findall(r"(\d+) rows", kernel.note)[0]) == rows
    assert kernel.number >= error and said("scoreboard", r"third of the sizes: ([\d.]+)%") == [kernel.number]


def test_the_kernel_for_experts_has_the_shares_of_the_peak_that_are_reported() -> None:
    text = (IMPLEMENTATIONS / "mega_moe.mgs").read_text()
    pattern = r'gpus (\w+)\n\n.*flops ([\d.]+) ([TP])FLOP/s @reported ".*: (\d+) % of the peak"'
    found = re.findall(pattern, text)

    assert [gpu for gpu, *_ in found] == ["GB200", "B200"]
    for gpu, flops, unit, share in some(found):
        peak = gpu_of(gpu).peak(DType.FP8)
        assert peak and round(100 * float(flops) * {"T": 1e12, "P": 1e15}[unit] / peak) == int(share), gpu


@ON_TABLES
def test_implementations_state_the_shortest_time_of_their_rows() -> None:
    """To a microsecond, of the thread that is named."""
    rows = [row for row in implementation_rows(Path(DATA)) if row.name != "torch_multimem"]  # nothing is fitted to it
    known = {(each.name, each.block): each for each in stated("shortest")}

    assert len({(row.name, row.part.pattern) for row in rows}) == 15
    for name, block in some(sorted({(row.name, row.part.pattern.value) for row in rows})):
        of, thread = known[name, block], re.search(r"/(\S+?)#(\d+)", known[name, block].note)
        times = [
            row.fused_us
            for row in rows
            if (row.name, row.part.pattern.value) == (name, block)
            and (thread is None or re.search(rf"{thread[1]}/\w+/{thread[2]}$", row.source))
        ]
        assert of.number == pytest.approx(min(times), abs=1), of
