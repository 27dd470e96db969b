"""Texts, bars and the geometry of the timeline, without a screen."""

import subprocess
import sys

import pytest

from magus.compiler.ir import OpCase
from magus.compiler.resolve.expect.expectation import Verdict
from magus.simcore import run_of
from magus.simcore.figures.result import Waterfall
from magus.tui.app.charts.rows import bars_of, drawn_bars
from magus.tui.app.session.view import SortKey, fitted_code, rows_of, selected_text, shortened, verdict_of
from magus.tui.text.render import verdict_sentence
from tests.helpers.scenarios import scenarios
from tests.helpers.tui import fakes


@pytest.mark.slow
def test_logic_needs_no_textual() -> None:
    heavy = ("textual", "ortools", "sklearn", "typer")
    modules = ", ".join(
        f"magus.tui.app.{name}"
        for name in ("session.session", "background", "session.view", "charts.rows", "charts.model")
    )
    code = f"import sys, {modules}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_bars_lead_from_bound_to_makespan() -> None:
    bars = bars_of(Waterfall(128, 100, 2, -1, 5, 14, 80))

    assert [(bar.start_ticks, bar.ticks) for bar in bars] == [(0, 80), (80, 14), (94, 5), (99, -1), (98, 2), (0, 100)]
    drawn = drawn_bars(bars, 50)
    assert {len(line) for line in drawn} == {50}
    assert drawn[0] == "█" * 40 + " " * 10
    assert drawn[-1] == "█" * 50


def test_a_shortened_schedule_keeps_its_parameters() -> None:
    short = shortened(fakes.LONG, 44)

    assert len(short) == 44
    assert short.startswith("hetero_un…")
    assert short.endswith("128, engine=sm(32), streams=4)")
    assert shortened(fakes.BEST, 80) == fakes.BEST
    assert [len(shortened(fakes.BEST, width)) for width in (5, 10, 11)] == [5, 10, 11]


def test_rows_sort_by_any_key_with_the_unknown_last() -> None:
    advice = fakes.advice(scenarios.ag_gemm(2048, 3584, 4096))
    order = {key: [row.rank for row in rows_of(advice, {}, key)] for key in SortKey}

    assert order[SortKey.RANK] == [1, 2, 3, 4, 5]
    assert order[SortKey.SCHEDULE] == [3, 4, 2, 5, 1]
    assert order[SortKey.PREDICTED] == [1, 2, 4, 5, 3]
    assert order[SortKey.SIMULATED] == [1, 2, 3, 4, 5]
    assert order[SortKey.SPEEDUP] == [1, 2, 3, 4, 5]


def test_a_result_on_demand_fills_the_gap_of_the_advice() -> None:
    scenario = scenarios.ag_gemm(2048, 3584, 4096)
    advice = fakes.advice(scenario)
    on_demand = fakes.result(scenario, fakes.UNSEEN, 105.0, line=False)
    before = rows_of(advice, {}, SortKey.RANK)[-1]
    after = rows_of(advice, {fakes.UNSEEN: run_of(scenario, on_demand)}, SortKey.RANK)[-1]

    assert selected_text(before) == f"{fakes.UNSEEN}  120.0 us predicted ~0.97x"
    assert selected_text(after) == f"{fakes.UNSEEN}  105.0 us packet 1.11x"


def test_code_is_cut_around_its_carets() -> None:
    code, carets = fitted_code("a" * 100 + "WRONG" + "b" * 100, " " * 100 + "^^^^^", 40)

    assert len(code) == 40
    assert code[carets.index("^") :].startswith("WRONG")
    assert fitted_code("short", " ^", 40) == ("short", " ^")


@pytest.mark.parametrize(
    ("scenario", "verdict", "sentence", "headline"),
    [
        (
            scenarios.lone_gather(512, 512),
            Verdict.USE,
            f"Use {fakes.BEST}: 100.0 us, 1.17x faster than the direct exchange, 117.0 us.",
            f"USE: 1.17x faster than the direct exchange: {fakes.BEST}",
        ),
        (
            scenarios.lone_gather(512, 512),
            Verdict.LIBRARY,
            "LIBRARY: keep its choice, 117.0 us; no other schedule is clearly faster.",
            f"LIBRARY: no other schedule is clearly faster: {fakes.SERIAL}",
        ),
        (
            scenarios.lone_gemm(512, 512, 512),
            Verdict.SERIAL,
            f"SERIAL: there is one kernel and nothing to move. Use {fakes.SERIAL}, 117.0 us.",
            f"SERIAL: there is one kernel and nothing to move; use {fakes.SERIAL}",
        ),
    ],
    ids=["algorithm", "library", "kernel"],
)
def test_the_headline_fits_what_was_requested(scenario: OpCase, verdict: Verdict, sentence: str, headline: str) -> None:
    advice = fakes.advice(scenario, verdict)

    assert verdict_sentence(advice) == sentence
    assert verdict_of(advice, 160) == headline
