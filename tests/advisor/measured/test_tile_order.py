"""Bytes read from memory by the order of tiles: the shipped table within its stated error, and wrong rows."""

from pathlib import Path
from statistics import median

import pytest

from magus.advisor.measured.tables.csv_rows import TableComparison
from magus.advisor.measured.tables.implementations import ORDER_OPERATION, own_comparisons, shipped_comparisons

HEADER = "gpu,m,n,k,dtype,tile_m,tile_n,order,read_bytes,time_us"
ROW = "H100,4096,8192,8192,bf16,128,256,8,738216960,1027.7"


def test_working_sets_give_the_bytes_that_an_h100_reads() -> None:
    rows = [
        row for row in shipped_comparisons() if isinstance(row, TableComparison) and row.operation == ORDER_OPERATION
    ]
    errors = sorted(abs(row.predicted_us / row.measured_us - 1) for row in rows)

    assert len(errors) == 42
    assert median(errors) < 0.005
    assert errors[-2] < 0.12
    # The one whose working set is as large as the whole L2, of which a GPU in two halves has less.
    assert errors[-1] == pytest.approx(0.47, abs=0.01)
    assert max(row.measured_us for row in rows) > 20  # so that orders differ


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (("H100", "H9000"), "no profile"),
        (("bf16", "int3"), "an element type that is not known"),
        ((",8,7382", ",8.5,7382"), "not a whole number"),
        (("738216960", "-1"), "not a number above zero"),
    ],
)
def test_rows_that_cannot_be_compared_are_named(tmp_path: Path, changed: tuple[str, str], reason: str) -> None:
    path = tmp_path / "tile_order_one.csv"
    path.write_text(f"{HEADER}\n{ROW.replace(*changed)}\n")

    (said,) = own_comparisons(path)

    assert isinstance(said, str)
    assert reason in said
