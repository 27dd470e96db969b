"""What advice promises of kernels for a plan, against measured ones: which rows are compared, and what is said of them.

The figures themselves need measured tables: ``magus validate`` writes them into docs/accuracy.md.
"""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from magus.advisor.implementations.offers import Offer, Offers
from magus.advisor.implementations.predict import Promise
from magus.advisor.measured.tables.fused import FusedPart
from magus.advisor.measured.tables.implementations import ImplementationRow
from magus.advisor.measured.tables.promises import PromiseComparison, PromiseRow, promise_comparisons, promise_rows
from magus.advisor.measured.validate import promise_report
from magus.advisor.measured.validate.report import Validation, validate, validation_document
from magus.advisor.measured.validate.text import validation_page, validation_text
from magus.advisor.questions.advisor import Advisor
from magus.compiler.ir import DType, Pattern
from magus.compiler.resolve.expect.expectation import Verdict
from tests.helpers.paths import DOCS

HEAD = "gpu,n_gpus,op,m,n,k,shape_semantics,dtype,impl,time_us,source"
SMALL = "H100-SXM,4,{op},512,256,512,M global; N and K local,bf16,{impl},{us},here"
ROW = PromiseRow(
    "H100", 4, DType.BF16, FusedPart(Pattern.AG_GEMM, 512, 256, 512), "here", "flux", library_us=90.0, best_us=60.0
)


def row(impl: str, us: float, op: str = "AG+GEMM") -> str:
    return SMALL.format(op=op, impl=impl, us=us)


def read(folder: Path, *rows: str) -> tuple[list[PromiseRow], list[str]]:
    (folder / "overlap_here.csv").write_text("\n".join((HEAD, *rows)) + "\n")
    found = list(promise_rows(folder))
    return [each for each in found if isinstance(each, PromiseRow)], [each for each in found if isinstance(each, str)]


def compared(best: float, promised: float, error: float, verdict: Verdict) -> PromiseComparison:
    interval = promised / (1 + error), promised / (1 - error)
    return PromiseComparison(replace(ROW, library_us=100.0 * best, best_us=100.0), promised, interval, verdict)


def test_the_fastest_kernel_of_a_shape_is_compared_with_the_library(tmp_path: Path) -> None:
    rows, texts = read(
        tmp_path, row("nccl+cublas", 90), row("flux", 60), row("something new", 50), row("flux", 70, "GEMM+RS")
    )

    assert rows == [replace(ROW, kernel="something new", best_us=50.0)]
    assert rows[0].speedup == 1.8 and rows[0].label == "4 x H100 AG+GEMM 512 x 256 x 512"
    assert texts == [
        "overlap_here.csv: 1 row: no promise: a kernel without the library's time beside it, or that alone"
    ]


def test_global_shapes_are_shared_out_among_the_ranks(tmp_path: Path) -> None:
    lines = [
        f"H800,8,{op},4096,49152,12288,global; tensor parallel,fp16,{impl},{us},here"
        for op in ("AG+GEMM", "GEMM+RS")
        for impl, us in (("torch+nccl", 1400), ("flux", 900))
    ]
    rows, _ = read(tmp_path, *lines)

    assert [each.part for each in rows] == [
        FusedPart(Pattern.AG_GEMM, 4096, 6144, 12288),
        FusedPart(Pattern.GEMM_RS, 4096, 49152, 1536),
    ]


@pytest.mark.parametrize(
    ("gpu", "ranks", "semantics", "dtype", "reason"),
    [
        ("L20(PCIe)", 8, "local", "bf16", "the GPU, the number of GPUs or the type"),
        ("H100", 1, "local", "bf16", "the GPU, the number of GPUs or the type"),
        ("H100", 8, "local", "unstated", "the GPU, the number of GPUs or the type"),
        ("H100", 8, "Seed-OSS", "bf16", "the shape of one GPU is not stated"),
    ],
)
def test_what_is_left_out_is_named_with_its_reason(
    tmp_path: Path, gpu: str, ranks: int, semantics: str, dtype: str, reason: str
) -> None:
    lines = [f"{gpu},{ranks},AG+GEMM,512,256,512,{semantics},{dtype},{impl},9,here" for impl in ("torch+nccl", "flux")]
    rows, (text,) = read(tmp_path, *lines)

    assert not rows
    assert text.startswith("overlap_here.csv: 2 rows: no promise: ") and reason in text


def test_a_kernel_that_is_faster_than_the_peak_is_left_out(tmp_path: Path) -> None:
    rows, (text,) = read(tmp_path, row("nccl+cublas", 90), row("superfuse", 0.1))

    assert not rows
    assert text.endswith("no promise: faster than the peak of H100, as AG+GEMM 512 x 256 x 512 in 0.1 us")


def test_what_cannot_be_laid_out_is_named_too() -> None:
    ticked: list[int] = []
    (text,) = promise_comparisons([replace(ROW, ranks=16)], lambda: ticked.append(1))

    assert isinstance(text, str) and text.startswith("16 x H100 AG+GEMM 512 x 256 x 512: no promise: ")
    assert ticked == [1]


def test_a_kernel_with_constants_of_a_thread_is_no_proof_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Offer("kraken", 180.0, Promise(0.5, 0.25), is_kernel=True)
    offers = Offers("torch_nccl", 90.0, (slow,), unrequested=(replace(slow, name="flux", promise=Promise(0.3, 0.0)),))
    advice = SimpleNamespace(promise=Promise(1.5, 0.25, known=0.4), offers=offers, verdict=Verdict.WORTH_TRYING)
    monkeypatch.setattr(Advisor, "recommend", lambda *_: advice)
    own = ImplementationRow("kraken", ROW.gpu, ROW.ranks, ROW.dtype, ROW.part, 180.0, 90.0, ROW.source)

    def compared(*rows: ImplementationRow) -> PromiseComparison:
        (found,) = promise_comparisons([replace(ROW, best_us=250.0)], lambda: None, rows)
        assert isinstance(found, PromiseComparison) and found.interval == (0.4, 2.0)
        return found

    assert compared(own).without_own == (0.3, 2.0)
    assert compared(own, replace(own, name="flux")).without_own == (1.2, 2.0)
    assert compared(replace(own, source="elsewhere"), replace(own, name="flux", whole_thread=True)).without_own == (
        0.4,
        2.0,
    )
    *_, text = promise_report.summary_lines([compared(own), compared(own, replace(own, name="flux"))])
    assert text.startswith("not in their interval: 2 of them, 2 of which lose; without")
    assert text.endswith("1, 1 of which lose")


def test_figures_are_of_all_of_those_that_gain_and_of_advised_overlap() -> None:
    rows = [
        compared(1.5, 1.6, 0.1, Verdict.OVERLAP),
        compared(1.2, 1.8, 0.1, Verdict.OVERLAP),
        compared(0.5, 1.5, 0.1, Verdict.OVERLAP),
        compared(0.9, 1.0, 0.1, Verdict.SERIAL),
    ]
    above, covered, lost = promise_report.targets_of(rows)

    assert [round(each.over_best, 3) for each in rows] == [1.067, 1.5, 1.5, 1.0]
    assert round(above.value, 1) == 28.3 and not above.met
    assert covered.name.endswith("of 2") and covered.value == 50
    assert lost.name.endswith("of 3") and round(lost.value, 1) == 33.3
    assert len(list(promise_report.weak_spots(rows))) == 3
    assert list(promise_report.weak_spots(rows[:1])) == []


def test_without_rows_nothing_is_said() -> None:
    nothing = Validation((), (), (), seed=0)

    assert promise_report.targets_of([]) == () and not list(promise_report.summary_lines([]))
    assert promise_report.TITLE not in validation_text(nothing) + validation_page(nothing)
    assert validation_document(nothing)["promises"] is None


def test_promises_are_the_first_part_of_the_report(tmp_path: Path) -> None:
    read(tmp_path, row("nccl+cublas", 90), row("flux", 60), row("something new", 70))
    found = validate(tmp_path, sample=0, seed=0)
    text, page, document = validation_text(found), validation_page(found), validation_document(found)

    assert max(len(line) for line in text.splitlines()) <= 80
    assert (
        text.partition("\n\n")[2].startswith(f"  {promise_report.BOARD_TITLE}")
        and promise_report.TITLE in text
        and "  4 x H100 AG+GEMM 512 x 256 x 512" in text
    )
    assert "| here | 4 x H100 AG+GEMM 512 x 256 x 512 | 1.50 |" in page
    promises = document["promises"]
    assert isinstance(promises, dict)
    (only,) = promises["rows"]
    assert (only["measured_speedup"], only["kernel"]) == (1.5, "flux")
    (comparison,) = found.promises
    assert only["promised_speedup"] == comparison.promised and only["verdict"] == comparison.verdict.value
    assert comparison.interval is None or comparison.interval[0] <= comparison.promised <= comparison.interval[1]


def test_the_readme_has_the_figures_of_the_page() -> None:
    """Both are written by hand or by the command, and neither alone."""
    root = DOCS.parent
    page, readme = (DOCS / "accuracy.md").read_text(), " ".join((root / "README.md").read_text().split())
    found = re.search(
        r"(\d+) shapes: promised above the best, median ([\d.]+)%.* gains, of (\d+) ([\d.]+)%.* lost, of \d+ ([\d.]+)%",
        page,
    )

    assert found is not None
    shapes, above, gaining, covered, lost = (float(each) for each in found.groups())
    assert (
        f"At the median of {shapes:.0f} published shapes, the speedup promised to a kernel is {above:.0f} % above"
        in readme
    )
    assert f"Of the {gaining:.0f} kernels that gain, {covered:.0f} % lie in the interval" in readme
    assert f"the best kernel loses in {lost:.0f} %" in readme
