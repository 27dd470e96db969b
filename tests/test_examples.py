"""Every shipped example holds what it expects, and no answer is worse than serial."""

import pytest
from typer.testing import CliRunner

from magus.advisor import AdviceOptions, Advisor, recommend_workload
from magus.compiler import compile_file
from magus.compiler.collectives import ALGORITHM_BY_NAME
from magus.compiler.ir import NamedSchedule, OpChoice
from magus.examples import LAYERS, MOE, NAMES, PAPERS, TEMPLATES, path
from magus.tui.cli import app
from tests.helpers.marks import thinned
from tests.helpers.paths import GOLDEN
from tests.helpers.scenarios.compiled import cases_in, several_in

pytestmark = pytest.mark.usefixtures("compiled_core", "one_model")
ADVISED = ("llama70b_tp8_mi300x", "gemm_rs_h100", "decode_small_batch")


# Larger problems, of which simulations take ten seconds and more.
SLOW = (
    "all_to_all_mi300x",
    "hot_expert_mi300x",
    "moe_dispatch_mi300x",
    "moe_combine_mi300x",
    "ulysses_h100",
    "ring_attention_h100",
    "templates/two_nodes",
    "fsdp_two_nodes_h100",
    "four_systems",
    *LAYERS,
    *MOE,
)
EXPECTING = [*(name for name in NAMES if name not in ADVISED), *TEMPLATES, *LAYERS, *MOE]


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in EXPECTING]
)
def test_an_example_holds_what_it_expects(name: str) -> None:
    done = CliRunner().invoke(app, ["test", str(path(name)), "--workers", "1"])

    assert done.exit_code == 0, done.output
    assert "0 failed" in done.stdout


# The last is the quickest; the README shows the first.
@pytest.mark.parametrize("name", thinned(reversed(ADVISED), len(ADVISED)))
def test_the_answer_is_never_worse_than_serial(name: str) -> None:
    advice = Advisor.load().recommend(compile_file(path(name)).scenario(), AdviceOptions(workers=2, bespoke=0))

    assert advice.recommended.best_us <= advice.serial.best_us
    assert advice.gap_to_bound is not None and advice.gap_to_bound >= 0
    assert advice.result is not None and advice.result.granularity == "line"


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, *TEMPLATES, *PAPERS, *LAYERS, *MOE])
def test_every_workload_of_every_example_gets_an_answer(name: str) -> None:
    """With the defaults of ``magus advise``: tests that leave stages out do not see what these stages break."""
    advisor, compiled = Advisor.load(), compile_file(path(name))
    answers = [
        advisor.recommend(scenario)
        for scenario in compiled.workloads
        if scenario.only_case is not None and scenario.system.replay is None
    ]
    of_graphs = [recommend_workload(scenario) for scenario in several_in(compiled)]

    assert answers or of_graphs
    for graph in of_graphs:
        assert not graph.notes and graph.recommended.result is not None and graph.ops
        assert graph.recommended.ticks <= graph.serial.ticks
    for advice in answers:
        assert advice.notes == ()
        assert advice.result is not None and advice.serial_result is not None
        assert advice.recommended.best_us <= advice.serial.best_us


def test_every_example_is_listed() -> None:
    folder = path(NAMES[0]).parent
    found = {str(file.relative_to(folder).with_suffix("")) for file in folder.rglob("*.mgs")}

    assert found == {*NAMES, *TEMPLATES, *PAPERS, *LAYERS, *MOE}


def test_every_template_and_every_algorithm_with_a_golden_plan_has_an_example() -> None:
    """Each beside a kernel where it can be; ``bespoke`` is written by the optimizer."""
    shown = {plan.stem for plan in (GOLDEN / "plans").iterdir()}
    choices = [named.body for name in TEMPLATES for named in _declared(name) if isinstance(named.body, OpChoice)]

    assert {choice.template for choice in choices} == shown - {"bespoke"}
    pipelined = {choice.algorithm for choice in choices if choice.template == "pipelined"}
    assert pipelined == {"", *(shown & set(ALGORITHM_BY_NAME))} - {"ring", "nvls"}


def _declared(name: str) -> tuple[NamedSchedule, ...]:
    return tuple(named for scenario in cases_in(compile_file(path(name))) for named in scenario.schedules)
