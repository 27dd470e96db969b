"""Comparisons summed up, beside their targets, as text of 80 columns, as a page and as a document."""

import json
import math

import pytest

from magus.advisor.measured.tables.csv_rows import TableComparison
from magus.advisor.measured.tables.gemm import LARGE
from magus.advisor.measured.tables.samples import Agreement
from magus.advisor.measured.validate.report import Validation, comparable, summed_up, validation_document, weak_spots
from magus.advisor.measured.validate.text import validation_page, validation_text


def row(group: str, measured: float, predicted: float, operation: str = LARGE, gpu: str = "H100") -> TableComparison:
    return TableComparison(gpu, operation, group, f"point at {measured:g}", measured, predicted)


ROWS = (
    row("m < 64", 10, 10.4),
    row("m < 64", 20, 19),
    row("m >= 512", 100, 150),
    row("m >= 512", 200, 100),
    row("one size", 5, 5.5, "all_gather"),
    row("m < 64", 1, 1, LARGE, "A100"),
)


def validation(rows: tuple[TableComparison, ...] = ROWS) -> Validation:
    agreement = Agreement("H100", 200, 0.0001, 0.03, "1 x 2 x 3", beyond=2, too_large=4)
    return Validation(summed_up(rows), (agreement,), tuple(f"t.csv:{line}: no m" for line in range(50)), seed=5)


def test_figures_are_the_errors_of_their_rows() -> None:
    figures = {(each.gpu, each.operation, each.group): each for each in summed_up(ROWS)}

    large = figures["H100", LARGE, "m >= 512"]
    assert large.rows == 2
    assert large.mape == pytest.approx(50)
    assert large.median == pytest.approx(50 * (math.log(1.5) + math.log(2)))
    assert large.bias == pytest.approx(50 * (math.log(1.5) - math.log(2)))
    assert [each.measured_us for each in large.worst] == [200, 100]
    assert figures["H100", LARGE, "all"].rows == 4
    assert figures["H100", LARGE, "all"].mape == pytest.approx((4 + 5 + 50 + 50) / 4)
    assert next(iter(figures)) == ("H100", LARGE, "all")


def test_a_group_named_all_is_not_counted_twice() -> None:
    (figures,) = summed_up([row("all", 1, 2, "all_to_all")])

    assert (figures.group, figures.rows, figures.target, figures.missed) == ("all", 1, 6.0, True)


@pytest.mark.parametrize(
    ("measured", "predicted"), [(0, 1), (1, 0), (-1, 1), (math.nan, 1), (1, math.inf), (5e-324, 1), (1, 101)]
)
def test_what_is_no_time_is_not_compared(measured: float, predicted: float) -> None:
    assert not comparable(row("m < 64", measured, predicted))
    assert comparable(row("m < 64", 3.0, 4.0))


def test_weak_spots_are_missed_targets_and_groups_above_the_target_of_the_whole() -> None:
    assert list(weak_spots(validation())) == [
        f"H100 {LARGE}, m >= 512: 50.0%, the target is 6%",
        "H100 all_gather, all: 10.0%, the target is 5.5%",
        "H100 all_gather, one size: 10.0%, above the 5.5% set for all of all_gather",
        "H100: 2 of 200 GEMMs take more than 2% longer or shorter simulated than by the closed form, 1 x 2 x 3 3.0%",
    ]


def test_medians_are_weak_spots_where_nothing_was_fitted_and_a_target_is_missed() -> None:
    kinds = ("experts, nvfp4, cutlass", "hottest experts, fp8, cutlass", "deepep dispatch", "mla generation, trtllm")
    groups = ("fit, more rows each", "held out, more rows each")
    rows = tuple(row(group, 100.0, 114.0, kind) for kind in kinds for group in groups)

    assert [spot for spot in weak_spots(validation(rows)) if "median" in spot] == [
        "H100 experts, nvfp4, cutlass, held out, more rows each: median 13.1%, at most 12% wanted",
        "H100 deepep dispatch, held out, more rows each: median 13.1%, at most 12% wanted",
    ]


def test_the_text_fits_80_columns_and_says_what_was_missed() -> None:
    text = validation_text(validation((*ROWS, row("x" * 90, 1, 2, "an operation of a very long name " * 4))))

    assert max(len(line) for line in text.splitlines()) <= 80
    assert [line.split()[1:3] for line in text.splitlines() if line.startswith("!")] == [
        ["m", ">="],
        ["all", "1"],
    ]
    assert "200 GEMMs, 2 of them beyond 2%" in text
    assert "and 18 more, see --json" in text


def test_the_document_holds_every_group_and_is_plain_json() -> None:
    document = json.loads(json.dumps(validation_document(validation()), allow_nan=False))

    assert (document["schema"], document["targets_met"], document["seed"]) == ("magus-validate/1", False, 5)
    large = next(each for each in document["groups"] if each["group"] == "m >= 512")
    assert (large["target_percent"], large["target_met"]) == (6.0, False)
    assert large["worst"][0] == {"label": "point at 200", "measured": 200, "predicted": 100}
    assert large["noise_floor"][0]["percent"] == "5.7"
    assert large["baselines"][0]["percent"] == "21"
    assert document["left_out_count"] == 50
    assert document["simulated"][0]["agrees"] is False


def test_the_page_is_markdown_with_a_table_for_each_gpu() -> None:
    page = validation_page(validation((*ROWS, row("a|b", 1, 1.01, "pipe"))))

    assert "## H100" in page and "## A100" in page
    assert f"| {LARGE} | m >= 512 | 2 | **50.0** |" in page
    assert "a\\|b" in page
    assert not [line for line in page.splitlines() if line != line.rstrip()]


def test_text_and_page_have_the_same_parts_in_one_order() -> None:
    found = validation()
    page, text = validation_page(found), [line.strip() for line in validation_text(found).splitlines()]

    titles = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    places = [next(at for at, line in enumerate(text) if line.startswith(title)) for title in titles]
    assert titles[:2] == ["H100", "A100"] and titles[-1] == "How to read it"
    assert places == sorted(set(places))
