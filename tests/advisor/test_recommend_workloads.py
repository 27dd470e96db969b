"""Advice on kernels other than a GEMM beside a collective: what it may choose from, and the whole answer."""

import pytest

from magus.advisor import AdviceOptions, Advisor
from magus.advisor.answer.export import advice_document
from magus.advisor.candidates.advice import Confidence
from magus.advisor.candidates.predicted import is_judged
from magus.advisor.solver import enumerate_space
from magus.advisor.solver.memory import check_memory, resident_bytes
from magus.compiler.ir import Scenario
from magus.compiler.planning.build import ScheduleError, build_op_plan
from magus.compiler.verify.check import check_plan
from magus.tui.text.ops import scenario_line
from magus.tui.text.render import advice_text
from tests.helpers.marks import first, thinned
from tests.helpers.scenarios.workloads import TEXTS, choices_of, workload_of
from tests.helpers.some import some

SHOWN = {
    "AG+attention": "AG+attention bf16 256 x 1024, 8 heads of 64 per rank",
    "A2A+attention causal": "A2A+attention bf16 1024 x 1024 causal, 8 heads of 64 per rank",
    "grouped_gemm+A2A": "grouped_gemm+A2A bf16 1024 x 256 x 128 in 3 experts per rank",
    "GEMM+A2A": "GEMM+A2A bf16 1024 x 256 x 64 per rank",
    "GEMM+A2A+GEMM": "GEMM+A2A+GEMM bf16 1024 x 256 x 64, then 1024 x 128 x 256 per rank",
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", thinned(TEXTS, 2))
def test_the_space_holds_what_is_legal_and_nothing_else(name: str) -> None:
    scenario = workload_of(name)
    found = enumerate_space(scenario).choices

    for choice in some(found[::3]):
        assert check_plan(scenario, build_op_plan(scenario, choice)) == ()
    requested = {(choice.template, choice.chunks) for choice in choices_of(scenario, (1, 2, 4, 8, 16, 32))}
    assert requested == {(choice.template, choice.chunks) for choice in found}


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "name", first([*SHOWN, "AG+attention causal", "A2A+attention", "attention+A2A", "A2A+grouped_gemm"], len(SHOWN))
)
def test_an_answer(name: str) -> None:
    scenario = workload_of(name)
    assert not is_judged(scenario) and not scenario.is_algorithm_choice

    advice = Advisor.load().recommend(Scenario.of_one(scenario), AdviceOptions(top=3))

    assert advice.recommended.best_us <= advice.serial.best_us and advice.serial.choice is not None
    assert advice.gap_to_bound is not None and advice.gap_to_bound >= 0 and advice.confidence is not Confidence.HIGH
    assert advice_document(advice)["pattern"] == scenario.shape.label == name.removesuffix(" causal")
    assert name.removesuffix(" causal") in advice_text(advice, 3)
    assert "None" not in advice_text(advice, 3)


@pytest.mark.parametrize(("name", "shown"), SHOWN.items())
def test_what_is_requested_in_one_line(name: str, shown: str) -> None:
    assert scenario_line(workload_of(name)) == f"one: {shown} on 4 x H100, switch"


@pytest.mark.parametrize(
    ("name", "resident"),
    [
        ("AG+attention", 256 * (512 + 512 + 512) * 2),  # q, the own keys and values, the output
        ("A2A+attention", 1024 * (1024 + 512) * 2),
        ("attention+A2A", 1024 * (1024 + 512) * 2),
        ("A2A+grouped_gemm", (1024 * 128 + 3 * 128 * 256 + 1024 * 256) * 2),
        ("GEMM+A2A", (1024 * 64 + 64 * 256 + 1024 * 256) * 2),
        ("GEMM+A2A+GEMM", (1024 * 64 + 64 * 256 + 256 * 128 + 1024 * 128) * 2),
        ("GEMM+A2A+GEMM side by side", (1024 * 64 + 64 * 128 + 512 * 256 + 256 * 256) * 2),
    ],
)
def test_memory_of_a_rank(name: str, resident: int) -> None:
    assert resident_bytes(workload_of(name)) == resident


def test_keys_that_do_not_fit_are_refused() -> None:
    """A million positions of 512 columns, gathered, with the partial output: a GPU has them, of 64 million not."""
    for rows, fits in ((1 << 20, True), (1 << 26, False)):
        scenario = workload_of("AG+attention", m=rows)
        schedule = build_op_plan(scenario, next(choices_of(scenario)))
        if fits:
            check_memory(scenario, schedule)
        else:
            with pytest.raises(ScheduleError, match=r"GiB a rank, .* more than"):
                check_memory(scenario, schedule)
