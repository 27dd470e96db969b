"""Fused kernels and their serial partners: which rows are compared, as which schedule, and what is said of them.

The accuracy itself needs measured tables: MAGUS_MEASURED_DATA names their folder.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from magus.advisor.measured.tables.fused import (
    TARGET,
    FusedComparison,
    FusedPart,
    FusedRow,
    comparable_rows,
    fused_comparisons,
    scenario_of,
    serial_us,
)
from magus.advisor.measured.tables.fused_plans import IMPLEMENTATIONS, implementation_named
from magus.advisor.measured.tables.gemm import predicted_us
from magus.advisor.measured.validate import fused_report
from magus.advisor.measured.validate.report import Validation, validate, validation_document
from magus.advisor.measured.validate.text import validation_page, validation_text
from magus.compiler.ir import TICKS_PER_US, DType, Kernels, Pattern
from magus.compiler.planning.build import build_op_plan
from magus.compiler.verify.check import check_plan
from magus.simcore.kernels.nccl import NcclCollective, collective_time

DATA = os.environ.get("MAGUS_MEASURED_DATA", "")
measured = pytest.mark.skipif(not DATA, reason="MAGUS_MEASURED_DATA names no folder")

HEAD = "gpu,n_gpus,op,m,n,k,shape_semantics,dtype,impl,time_us,source"
SMALL = "H100-SXM,4,{op},512,{n},{k},{semantics},bf16,{impl},{us},here"


def row(impl: str, us: float, op: str = "AG+GEMM", n: int = 256, k: int = 512, semantics: str = "M global") -> str:
    return SMALL.format(op=op, n=n, k=k, semantics=f"{semantics}; N and K local", impl=impl, us=us)


def read(folder: Path, *rows: str) -> tuple[list[FusedRow], list[str]]:
    (folder / "overlap_here.csv").write_text("\n".join((HEAD, *rows)) + "\n")
    found = list(comparable_rows(folder))
    return [each for each in found if isinstance(each, FusedRow)], [each for each in found if isinstance(each, str)]


def predicted(rows: Sequence[FusedRow]) -> list[FusedComparison]:
    found = list(fused_comparisons(rows, lambda: None))
    return [each for each in found if isinstance(each, FusedComparison)]


def comparison(name: str, measured_speedup: float, predicted_speedup: float) -> FusedComparison:
    implementation = implementation_named(name)
    assert implementation is not None
    parts = (FusedPart(Pattern.AG_GEMM, 512, 256, 512),)
    kernel = FusedRow("H100", 4, DType.BF16, parts, implementation, 100.0, 100 * measured_speedup)
    return FusedComparison(kernel, 50 * predicted_speedup, 50.0)


def test_a_fused_kernel_is_paired_with_the_library_of_the_same_row(tmp_path: Path) -> None:
    rows, texts = read(tmp_path, row("nccl+cublas", 90), row("flux", 60), row("nccl+cublas", 50, n=512))

    (only,) = rows
    assert (only.gpu, only.ranks, only.dtype) == ("H100", 4, DType.BF16)
    assert (only.serial_us, only.fused_us, only.implementation.name) == (90, 60, "flux")
    assert only.parts == (FusedPart(Pattern.AG_GEMM, 512, 256, 512),)
    assert texts == ["overlap_here.csv: 1 row: serial, and nothing fused beside it is compared"]


def test_global_shapes_are_shared_out_among_the_ranks(tmp_path: Path) -> None:
    lines = [
        f"H800,8,{op},4096,49152,12288,global; tensor parallel,fp16,{impl},{us},here"
        for op in ("AG+GEMM", "GEMM+RS")
        for impl, us in (("torch+nccl", 1400), ("flux", 900))
    ]
    rows, _ = read(tmp_path, *lines)

    parts = [part for each in rows for part in each.parts]
    assert parts == [FusedPart(Pattern.AG_GEMM, 4096, 6144, 12288), FusedPart(Pattern.GEMM_RS, 4096, 49152, 1536)]


def test_a_layer_is_its_two_gemms(tmp_path: Path) -> None:
    semantics = '"Qwen (hidden 5120, ffn 25600 local 3200)"'
    lines = [
        f'H800,8,"TP MLP {op}",2048,,,{semantics},bf16 (inferred),{impl},{us},here'
        for op in ("(AG+GEMM,GEMM+RS)", "(GEMM+AR)")
        for impl, us in (("torch AR/nccl baseline", 1000), ("triton-distributed", 800))
    ]
    rows, _ = read(tmp_path, *lines)

    assert [[part.pattern for part in each.parts] for each in rows] == [
        [Pattern.AG_GEMM, Pattern.GEMM_RS],
        [Pattern.GEMM, Pattern.GEMM_AR],
    ]
    assert (rows[0].parts[0].n, rows[0].parts[0].k) == (6400, 5120)
    assert (rows[0].parts[1].n, rows[0].parts[1].k) == (5120, 3200)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("L20(PCIe),8,AG+GEMM,512,256,512,local,bf16,flux,9,here", "no profile of L20(PCIe)"),
        ("MI355X,8,AG+GEMM,512,256,512,local,bf16,flux,9,here", "MI355X has no collectives"),
        ("H800,8,MoE layer0,8192,8192,8192,E32,bf16,flux,9,here", "a loop in torch"),
        ("H100,2,GEMM+RS,512,256,512,local,bf16,FlashOverlap (sm80),9,here", "another generation"),
        ("H100,8,AG+GEMM,512,256,512,local,bf16,nvFuser s=1,9,here", "without a partner"),
        ("H100,8,ZeRO-3 step,,,,step,bf16,flux,9,here", "a whole training step"),
        ("H100,4,AG+GEMM,512,256,512,M global; N and K local,bf16,flux,9,elsewhere", "no serial partner"),
        ("H100-SXM,4,AG+GEMM,512,256,512,M global; N and K local,bf16,something new,9,here", "something new"),
        ("H800,8,TP MLP (GEMM+AR),2048,,,Seed-OSS,,flux,9,here", "the shape or the number of GPUs is not stated"),
        ("H100,8,AG+GEMM,512,255,512,global,bf16,flux,9,here", "or does not divide"),
        ("H100,8,AG+GEMM,512,256,512,local,unstated,flux,9,here", "the type is not stated"),
        ("H100-SXM,4,AG+GEMM,512,256,512", "fields"),
    ],
)
def test_a_row_that_is_left_out_is_named_with_its_reason(tmp_path: Path, line: str, reason: str) -> None:
    rows, texts = read(tmp_path, row("nccl+cublas", 90), row("flux", 60), line)

    assert len(rows) == 1
    assert len(texts) == 1 and reason in texts[0]


def test_what_cannot_be_layout_out_is_named_too(tmp_path: Path) -> None:
    wide = [f"H100,16,AG+GEMM,512,256,512,N and K local,bf16,{impl},9,here" for impl in ("nccl+cublas", "flux")]
    rows, _ = read(tmp_path, *wide)
    ticked: list[int] = []
    (text,) = fused_comparisons(rows, lambda: ticked.append(1))

    assert isinstance(text, str) and text.startswith("H100 16 GPUs, AG+GEMM 512 x 256 x 512: ")
    assert ticked == [1]


def test_serial_is_the_library_gemm_and_the_library_collective(tmp_path: Path) -> None:
    (only,), _ = read(tmp_path, row("nccl+cublas", 90), row("flux", 60))
    gpu = scenario_of(only, only.parts[0]).gpu

    gathered = collective_time(gpu, NcclCollective.ALL_GATHER, 512 * 512 * 2, 4).us
    event = gpu.launch.event_ticks / TICKS_PER_US  # the GEMM waits in a stream of its own
    gemm = predicted_us("H100", [(512, 256, 512)])[512, 256, 512]
    assert serial_us(only) == pytest.approx(gemm + event + gathered, rel=0.01)


@pytest.mark.parametrize(
    ("implementation", "pattern"), [(each, pattern) for each in IMPLEMENTATIONS for pattern in each.plans]
)
def test_every_implementation_is_a_schedule_that_is_right_and_runs(implementation: object, pattern: Pattern) -> None:
    kernel = next(each for each in IMPLEMENTATIONS if each is implementation)
    part = FusedPart(pattern, 4096, 512, 512)
    fused = FusedRow("H100", 8, DType.BF16, (part,), kernel, 100.0, 100.0)
    scenario = scenario_of(fused, part)
    schedule = build_op_plan(scenario, kernel.plans[pattern](scenario), kernel.name)
    assert check_plan(scenario, schedule) == ()
    (found,) = predicted([fused])

    assert found.fused_us > 0 and found.predicted == found.serial_us / found.fused_us
    persistent = schedule.tactics.kernel is Kernels.PERSISTENT
    assert persistent is not kernel.name.startswith(("PyTorch async", "PyTorch multimem"))


def test_errors_are_of_speedups_and_of_times() -> None:
    found = comparison("flux", measured_speedup=1.5, predicted_speedup=1.2)

    assert (found.measured, found.predicted) == (1.5, 1.2)
    assert found.error == pytest.approx(-20)
    assert found.serial_error == pytest.approx(-60) and found.fused_error == pytest.approx(-50)


def test_medians_are_of_all_rows_and_by_implementation() -> None:
    rows = [comparison("flux", 1, 1.02), comparison("flux", 1, 0.96), comparison("kraken triton", 1, 2)]
    lines = list(fused_report.summary_lines(rows))
    document = fused_report.fused_document(rows)

    assert lines[0] == "speedup, 3 rows: median error 4.0%, the target of 10% is met"
    assert "flux 3.0% (2), kraken 100.0% (1)" in lines[2]
    assert document is not None and document["target_met"] is True
    assert document["by_implementation"]["kraken"] == pytest.approx(100)
    assert not list(fused_report.weak_spots(rows))
    assert list(fused_report.weak_spots(rows[2:])) == ["fused kernels: 100.0%, the target is 10%; above it: kraken"]


def test_without_rows_nothing_is_said() -> None:
    assert fused_report.fused_document([]) is None
    assert not list(fused_report.summary_lines([])) and not fused_report.missed([])


def test_fused_kernels_are_a_part_of_the_report(tmp_path: Path) -> None:
    read(tmp_path, row("nccl+cublas", 90), row("flux", 60), row("something new", 60))
    found = validate(tmp_path, sample=0, seed=0)
    text, page, document = validation_text(found), validation_page(found), validation_document(found)

    assert max(len(line) for line in text.splitlines()) <= 80
    assert "    H100 AG+GEMM 512 x 256 x 512" in text and "speedup, 1 row: " in text
    assert "| flux | H100 AG+GEMM 512 x 256 x 512 | 1.50 |" in page
    assert any("no schedule is known for something new" in each for each in document["left_out"])
    (only,) = document["fused"]["rows"]
    assert (only["measured_speedup"], only["implementation"]) == (1.5, "flux")
    assert document["targets_met"] is document["fused"]["target_met"]


def test_without_tables_the_report_has_no_part_for_them() -> None:
    nothing = Validation((), (), (), seed=0)

    assert "Fused" not in validation_text(nothing) and "Fused" not in validation_page(nothing)
    assert validation_document(nothing)["fused"] is None


@measured
def test_flux_is_as_accurate_as_promised() -> None:
    rows = [each for each in comparable_rows(Path(DATA)) if isinstance(each, FusedRow)]
    flux = predicted([each for each in rows if each.implementation.name == "flux"])

    assert len(rows) == 27 and len(flux) == 4
    assert max(abs(each.error) for each in flux) < TARGET
