"""Rows of implementations: which are read, which half they are in, and what is said of them.

The accuracy itself needs measured tables: MAGUS_MEASURED_DATA names their folder.
"""

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from magus.advisor.implementations.predict import FEW_ROWS, FUSED_ERROR, error_of, error_of_rows
from magus.advisor.measured.tables.csv_rows import TableComparison
from magus.advisor.measured.tables.fused import FusedPart
from magus.advisor.measured.tables.implementations import (
    KNOWN_AS,
    LIBRARY,
    OF_GPU,
    ImplementationComparison,
    ImplementationRow,
    implementation_comparisons,
    implementation_rows,
)
from magus.advisor.measured.validate import implementation_report, promise_report
from magus.advisor.measured.validate.report import Validation, validate, validation_document, weak_spots
from magus.advisor.measured.validate.text import validation_page, validation_text
from magus.compiler import compile_text
from magus.compiler.ir import DType, Method, Pattern, percentile
from magus.compiler.resolve.schedules.implementation import shipped_implementations
from tests.helpers.some import some

DATA = os.environ.get("MAGUS_MEASURED_DATA", "")
measured = pytest.mark.skipif(not DATA, reason="MAGUS_MEASURED_DATA names no folder")

HEAD = "gpu,n_gpus,op,m,n,k,shape_semantics,dtype,impl,time_us,source"


def line(
    impl: str, us: float, m: int = 512, source: str = "here", semantics: str = "N local", gpu: str = "H100"
) -> str:
    return f"{gpu},4,AG+GEMM,{m},256,512,{semantics},bf16,{impl},{us},{source}"


def read(folder: Path, *lines: str) -> tuple[ImplementationRow, ...]:
    (folder / "overlap_here.csv").write_text("\n".join((HEAD, *lines)) + "\n")
    return implementation_rows(folder)


def compared(
    speedup: float, predicted: float, *, held_out: bool = True, paired: bool = True, within: float | None = 0.05
) -> ImplementationComparison:
    part = FusedPart(Pattern.AG_GEMM, 512, 256, 512)
    partner = 100 * speedup if paired else None
    row = ImplementationRow("flux", "H100", 4, DType.BF16, part, 100.0, partner, "here", held_out)
    return ImplementationComparison(row, 50 * predicted, 50.0, within)


def shipped_methods() -> list[tuple[str, Method]]:
    text = 'use "nvidia/h100"\nsystem s { gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }\n'
    text += "workload w on s { a = tensor bf16[8, 8]; y = gemm(a, a) }"
    shipped = shipped_implementations(compile_text(text).scenario("w").case.system)
    return [(each.name, method) for each in shipped for method in each.methods]


def test_names_in_tables_are_those_of_shipped_implementations() -> None:
    assert {*KNOWN_AS.values(), *OF_GPU.values(), LIBRARY} <= {name for name, _ in shipped_methods()}


def test_a_row_needs_no_partner(tmp_path: Path) -> None:
    alone, paired = read(
        tmp_path, line("flux", 100), line("torch+nccl", 120, source="there"), line("flux", 90, source="there")
    )

    assert (alone.serial_us, paired.serial_us) == (None, 120)
    assert alone.held_out and alone.whole_thread and paired.whole_thread
    assert alone.label == "H100 AG+GEMM 512 x 256 x 512"


def test_every_second_row_of_a_thread_is_held_out(tmp_path: Path) -> None:
    rows = read(tmp_path, *(line("kraken triton", 100 + m, m) for m in (2048, 512, 1024)))

    assert [(row.part.m, row.held_out, row.whole_thread) for row in rows] == [
        (512, False, False),
        (1024, True, False),
        (2048, False, False),
    ]


def test_what_is_not_known_is_no_row(tmp_path: Path) -> None:
    assert not read(
        tmp_path,
        line("another kernel", 100),
        line("flux", 100, gpu="L20"),
        line("flux", 100, semantics="whose is not said"),
    )


def test_a_thread_without_a_gpu_that_is_known_to_be_one(tmp_path: Path) -> None:
    (row,) = read(tmp_path, line("flux", 100, gpu="SM90", source="github.com/bytedance/flux/issues/79"))

    assert row.gpu == "H800"


def test_another_kernel_on_other_gpus(tmp_path: Path) -> None:
    rows = read(tmp_path, line("flux", 100, gpu="A800"), line("kraken triton", 100, gpu="A800"))

    assert [row.name for row in rows] == ["flux_ampere", "kraken"]


def test_a_launch_behind_a_barrier_has_no_call(tmp_path: Path) -> None:
    head = "gpu,n_gpus,pattern,m,n,k,shape_semantics,dtype,best_static_us,best_static_comm_sms,swept_comm_sms"
    text = f'{head}\nH100,4,GEMM+RS,512,256,512,"M, N global, K local",bf16,40,8,2 8\n'
    (tmp_path / "sm_sweep_here.csv").write_text(text)
    (row,) = implementation_rows(tmp_path)
    swept, called = implementation_comparisons([row, replace(row, in_graph=False)], lambda: None)

    assert (row.name, row.in_graph, row.serial_us) == ("mkernel_hopper", True, None)
    assert isinstance(swept, ImplementationComparison) and isinstance(called, ImplementationComparison)
    assert (called.fused_us - swept.fused_us, called.serial_us - swept.serial_us) == pytest.approx((30, 30))


def test_a_row_is_predicted_or_it_is_said_why_not(tmp_path: Path) -> None:
    rows = read(tmp_path, line("flux", 100), line("multimem_all_gather matmul", 90))
    counted: list[int] = []

    found = list(implementation_comparisons(rows, lambda: counted.append(1)))

    assert isinstance(found[0], ImplementationComparison) and found[0].serial_us > 30 and len(counted) == 2
    assert found[1] == "H100 AG+GEMM 512 x 256 x 512: torch_multimem: rate, call, step not known"


def test_without_a_partner_the_error_is_that_of_the_time() -> None:
    row = compared(1.2, 1.5, paired=False)
    row = replace(row, row=replace(row.row, fused_us=40.0))

    assert row.error == pytest.approx(100 * (40 / 50 - 1))
    assert implementation_report.cells_of(row)[0].startswith("~")


def test_figures_are_those_of_the_held_out_half() -> None:
    rows = [compared(1.0, 2.0, held_out=False), compared(1.2, 1.2), compared(0.9, 1.1), compared(0.8, 0.74)]

    targets = implementation_report.targets_of(rows)

    values = {target.name: target.value for target in targets}
    assert values["median error of the speedup"] == pytest.approx(7.5)
    assert values["p90"] == pytest.approx(100 * (1.1 / 0.9 - 1))
    assert values["right sign"] == pytest.approx(200 / 3)
    assert values["promised and slower"] == pytest.approx(100 / 3)
    assert {target.name for target in targets if target.met} == {"median error of the speedup", "p90"}


def test_threads_that_nothing_was_fitted_to_have_targets_of_their_own() -> None:
    unseen = [
        replace(each, row=replace(each.row, whole_thread=True)) for each in (compared(1.0, 1.4), compared(0.9, 1.1))
    ]
    validation = report([*unseen, compared(1.2, 1.2)])

    assert [target.met for target in implementation_report.unseen_targets(unseen)] == [False, False, False]
    said = [spot for spot in weak_spots(validation) if "threads never fitted" in spot]
    assert said[-1] == "implementations, threads never fitted: right sign 0.0%, at least 95% wanted: missed"
    assert not implementation_report.unseen_targets([compared(1.0, 1.4)])


def test_a_gain_within_the_stated_error_is_no_promise() -> None:
    assert not compared(0.9, 1.04).promised and compared(0.9, 1.06).promised


def test_without_held_out_rows_there_are_no_figures() -> None:
    assert not implementation_report.targets_of([compared(1.0, 2.0, held_out=False)])
    assert not implementation_report.targets_of([]) and implementation_report.implementations_document([]) is None


def report(rows: Sequence[ImplementationComparison]) -> Validation:
    return Validation((), (), (), 0, implementations=tuple(rows))


def test_report_text_page_and_document_have_every_row() -> None:
    validation = report([compared(1.2, 1.3, held_out=False), compared(0.8, 1.2)])
    text, page, document = validation_text(validation), validation_page(validation), validation_document(validation)

    assert "0.80       1.20  +50.0" in text and all(len(each) <= 80 for each in text.splitlines())
    assert "| flux | H100 AG+GEMM 512 x 256 x 512 | 0.80 | 1.20 | +50.0 | -50.0 | held out |" in page
    assert [row["held_out"] for row in document["implementations"]["rows"]] == [False, True]
    assert not document["targets_met"] and any("right sign 0.0%" in each for each in weak_spots(validation))


def test_the_scoreboard_has_a_line_for_each_use_and_size() -> None:
    lost, fitted, missed = compared(0.9, 1.2), compared(1.0, 1.02, held_out=False), compared(1.2, 0.9)
    long = compared(1.2, 1.23)
    long = replace(long, row=replace(long.row, whole_thread=True, fused_us=1000.0, serial_us=1200.0))

    lines = list(promise_report.board([], [lost, fitted, missed, long]))

    assert lines[:3] == [
        ("all implementations", "thread never fitted, from 250 us", ("1", "2.5", "2.5", "100", "100", "0", "0")),
        ("all implementations", "held out, small", ("2", "29.2", "33.3", "0", "0", "1", "1")),
        ("all implementations", "fit, small", ("1", "2.0", "2.0", "0", "100", "0", "0")),
    ]
    assert [line[1:] for line in lines[3:]] == [line[1:] for line in lines[:3]] and lines[3][0] == "flux"


def test_the_scoreboard_has_times_behind_speedups_by_kind() -> None:
    """An interval of a time is as wide as the error that ships; rows without one have no cover."""
    row = TableComparison("H100", "deepep combine", "fit", "x", 100.0, 110.0, "exchanges of experts", 0.1)
    others = [replace(row, group="other tokens", measured_us=us) for us in (98.0, 122.0, 400.0)]
    other = replace(row, operation="mega_moe layer", kind="one kernel for experts", error=None)

    lines = list(promise_report.board([], [compared(1.2, 1.23)], [row, *others, other]))

    assert [line[:2] for line in lines[2:]] == [
        ("exchanges of experts", "held out, small"),
        ("exchanges of experts", "held out, from 250 us"),
        ("exchanges of experts", "fit, small"),
        ("deepep combine", "held out, small"),
        ("deepep combine", "held out, from 250 us"),
        ("deepep combine", "fit, small"),
        ("one kernel for experts", "fit, small"),
        ("mega_moe layer", "fit, small"),
    ]
    assert lines[2][2] == ("2", "11.0", "12.2", "", "0", "", "")
    assert lines[4][2] == ("1", "10.0", "10.0", "", "100", "", "") and lines[-1][2][4] == ""
    page = validation_page(replace(report([]), times=(row,)))
    assert "| deepep combine | fit, small | 1 | 10.0 | 10.0 |  | 100 |  |  |" in page


@pytest.fixture(scope="module")
def of_all_rows(compiled_core: None) -> list[ImplementationComparison]:
    found = implementation_comparisons(implementation_rows(Path(DATA)), lambda: None)
    return [row for row in found if isinstance(row, ImplementationComparison)]


@pytest.mark.slow
@measured
def test_stated_errors_are_those_of_the_held_out_rows(of_all_rows: list[ImplementationComparison]) -> None:
    rows = [row for row in of_all_rows if row.row.held_out]
    errors = defaultdict[tuple[str, Pattern], list[float]](list)
    for row in rows:
        errors[row.row.name, row.row.part.pattern].append(abs(row.error) / 100)
    family = percentile([abs(row.error) / 100 for row in rows], 90)
    shipped = {(name, each.pattern): each for name, each in shipped_methods()}

    assert family <= FUSED_ERROR < family + 0.01
    for method, own in some(errors.items()):
        assert error_of(shipped[method]) == pytest.approx(error_of_rows(own, FUSED_ERROR), abs=0.01), method


def test_the_error_of_few_rows_is_no_less_than_that_of_the_family() -> None:
    few, many = [0.01] * (FEW_ROWS - 1), [0.01] * (FEW_ROWS - 1) + [0.5]

    assert (error_of_rows([], 0.2), error_of_rows(few, 0.2), error_of_rows([*few[1:], 0.5], 0.2)) == (0.2, 0.2, 0.5)
    assert error_of_rows(many, 0.2) == 0.01, "nine tenths of ten"


def test_no_promise_is_as_wide_as_the_rows_of_its_own_thread_say() -> None:
    far, near = compared(1.0, 1.4, within=None), compared(1.0, 1.1, within=None)
    rows = (far, near, replace(near, row=replace(near.row, source="there")))

    found = implementation_report.by_other_threads(rows)

    assert [row.within for row in found] == [pytest.approx(0.1), pytest.approx(0.1), pytest.approx(0.4)]
    (alone,) = implementation_report.by_other_threads([far])
    assert alone.within is None and not alone.promised


@pytest.mark.slow
@measured
def test_held_out_rows_meet_the_targets(of_all_rows: list[ImplementationComparison]) -> None:
    assert len(of_all_rows) >= 50 and all(target.met for target in implementation_report.targets_of(of_all_rows))


def test_rows_of_implementations_and_their_partners_need_no_reason(tmp_path: Path) -> None:
    read(tmp_path, line("mKernel", 100), line("unfused baseline", 90), line("another", 80))
    (tmp_path / "unknown.csv").write_text("a,b\n1,2\n")
    (tmp_path / "overlap_beside.csv").write_text(
        "\n".join((HEAD, line("both", 100).replace("AG+GEMM", "independent GEMM || all-gather"))) + "\n"
    )

    left_out = validate(tmp_path, sample=0, seed=0).left_out

    assert not any(each.startswith("overlap_here.csv") for each in left_out)
    assert any(each.startswith("overlap_beside.csv: 1 row: no promise: not one GEMM") for each in left_out)
    assert "no comparison reads tables of these names: unknown.csv" in left_out
