"""Measured GEMMs beside copies: the shipped table within its stated error, and tables that are wrong."""

from pathlib import Path
from statistics import median

import pytest

from magus.advisor.measured.tables.csv_rows import MeasuredError, TableComparison
from magus.advisor.measured.tables.implementations import BESIDE_OPERATION, own_comparisons, shipped_comparisons

HEADER = "gpu,m,n,k,dtype,beside,copy_sms,copied_gb_s,alone_us,beside_us,half"
ROW = "H100,8192,8192,8192,bf16,ce,0,350,1570,1770,held out"


def errors(group: str) -> list[float]:
    rows = [
        row for row in shipped_comparisons() if isinstance(row, TableComparison) and row.operation == BESIDE_OPERATION
    ]
    return [abs(row.predicted_us / row.measured_us - 1) for row in rows if row.group == group]


@pytest.mark.parametrize(
    ("group", "rows", "middle", "most"),
    [
        ("by copy engines, fit", 12, 0.026, 0.06),
        ("by copy engines, held out", 16, 0.014, 0.09),
        ("by SMs, held out", 40, 0.031, 0.11),
    ],
)
def test_the_shipped_constants_have_their_stated_error(group: str, rows: int, middle: float, most: float) -> None:
    found = errors(group)

    assert len(found) == rows
    assert median(found) == pytest.approx(middle, abs=0.001)
    assert max(found) < most


def read(tmp_path: Path, *rows: str, header: str = HEADER) -> list[TableComparison | str]:
    path = tmp_path / "beside_one.csv"
    path.write_text("\n".join((header, *rows)) + "\n")
    return list(own_comparisons(path))


def test_a_row_is_compared_with_the_slower_kernel(tmp_path: Path) -> None:
    (row,) = read(tmp_path, ROW)

    assert isinstance(row, TableComparison)
    assert row.measured_us == 1770
    assert 1700 < row.predicted_us < 1800


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (("H100", "H9000"), "no profile"),
        ((",ce,", ",wire,"), "an engine that is not known"),
        (("bf16", "int3"), "an element type that is not known"),
        ((",0,350", ",132,350"), "number of SMs"),
        ((",0,350", ",-1,350"), "number of SMs"),
        (("8192,8192,8192", "8192.5,8192,8192"), "not a whole number"),
        (("350", "1600"), "more than 60% of memory"),
        (("1770", "0"), "not a number above zero"),
        (("1570", "nan"), "not a number above zero"),
    ],
)
def test_rows_that_cannot_be_compared_are_named(tmp_path: Path, changed: tuple[str, str], reason: str) -> None:
    (said,) = read(tmp_path, ROW.replace(*changed))

    assert isinstance(said, str)
    assert reason in said


def test_a_table_without_a_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MeasuredError, match="no column half"):
        read(tmp_path, ROW.rpartition(",")[0], header=HEADER.rpartition(",")[0])
