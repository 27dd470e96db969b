"""HolisticTraceAnalysis reads the traces, and finds the overlap that the simulator says."""

from pathlib import Path
from typing import Any

import pytest

from magus.compiler.ir import Pattern
from magus.simcore import Result, run_of
from magus.simcore.figures.load_buckets import exposed_spans, total_ticks, union_of
from magus.simcore.figures.result import IntervalKind
from magus.tui.drawing.chrome_trace import chrome_trace
from tests.helpers.scenarios.simulated import persistent_run, runs
from tests.helpers.some import some

hta: Any = pytest.importorskip("hta.trace_analysis", reason="the extra peers is not installed")


def hidden_percent(result: Result, rank: int) -> float:
    own = [each for each in result.timeline.of_rank(rank) if each.kind is IntervalKind.COMM]
    moved = total_ticks(union_of(own))
    return 100 * (moved - total_ticks(exposed_spans(result.timeline, rank))) / moved


@pytest.mark.parametrize("pattern", [Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR, Pattern.A2A_GEMM])
def test_the_overlap_is_that_of_the_simulator(
    pattern: Pattern, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")  # else it rounds to whole microseconds
    for scenario, result in some([*runs(pattern, 3), persistent_run()]):
        files = {}
        for rank in range(scenario.num_ranks):
            files[rank] = str(tmp_path / f"{rank}.json")
            Path(files[rank]).write_text(chrome_trace(run_of(scenario, result), range(rank, rank + 1)).text)

        found = hta.TraceAnalysis(trace_files=files).get_comm_comp_overlap(visualize=False)

        ranks = range(scenario.num_ranks)
        assert list(found["rank"]) == list(ranks)
        shares = [hidden_percent(result, rank) for rank in ranks]
        assert list(found["comp_comm_overlap_pctg"]) == pytest.approx(shares, abs=0.02), result.schedule.expression


def test_kernels_are_reported_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")
    scenario, result = persistent_run()
    file = tmp_path / "all.json"
    file.write_text(chrome_trace(run_of(scenario, result)).text)

    kinds, _ = hta.TraceAnalysis(trace_files={0: str(file)}).get_gpu_kernel_breakdown(visualize=False)

    assert set(kinds["kernel_type"]) == {"COMPUTATION", "COMMUNICATION", "COMPUTATION overlapping COMMUNICATION"}
