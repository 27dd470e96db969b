"""Measured dispatches and combines: what a row is compared with, and that held-out errors are those of the files."""

import os
from collections import defaultdict
from pathlib import Path

import pytest

from magus.advisor.measured.tables.csv_rows import TableComparison
from magus.advisor.measured.tables.exchanges import FIT, PATTERN_OF, exchange_comparisons
from magus.advisor.measured.tables.samples import collective_on
from magus.compiler.ir import percentile
from magus.compiler.resolve.schedules.implementation import shipped_implementations

DATA = os.environ.get("MAGUS_MEASURED_DATA", "")
HEADER = "gpu,n_nodes,n_gpus,hidden,tokens_per_rank,topk,experts,dispatch_us,combine_us"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("H100-SXM,2,16,7168,128,8,256,80,90", "more than one node"),
        ("H100-SXM,1,8,7168,128,1,256,80,90", "fewer than 4 experts"),
        ("H100-SXM,1,4,7168,128,8,256,80,90", "not known for"),
        ("X9,1,8,7168,128,8,256,80,90", "no profile of X9"),
    ],
)
def test_what_is_left_out_is_reported(tmp_path: Path, row: str, reason: str) -> None:
    (tmp_path / "deepep_low_latency.csv").write_text(f"{HEADER}\n{row}\n")
    (text,) = exchange_comparisons(tmp_path)

    assert isinstance(text, str) and reason in text


@pytest.mark.skipif(not DATA, reason="MAGUS_MEASURED_DATA names no folder")
def test_the_stated_errors_are_those_of_rows_that_nothing_was_fitted_to() -> None:
    errors = defaultdict[tuple[str, str], list[float]](list)
    for row in exchange_comparisons(Path(DATA)):
        if isinstance(row, TableComparison) and row.group != FIT:
            errors[row.gpu, row.operation].append(abs(row.predicted_us / row.measured_us - 1))

    assert len(errors) == 10
    for (gpu, operation), found in errors.items():
        name, phase = operation.split()
        shipped = shipped_implementations(collective_on(gpu, 8).system)
        method = next(each for each in shipped if each.name == name).method(PATTERN_OF[phase])
        assert method is not None and method.error is not None
        assert float(method.error) == pytest.approx(percentile(found, 90), rel=0.01), (gpu, operation)
