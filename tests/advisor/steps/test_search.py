"""Layouts of a step: which can be, which fit, and which is fastest."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from threading import get_ident
from typing import Any, cast

import pytest

from magus.advisor.layers.beside import Alone, GroupLayer, LayerBeside
from magus.advisor.steps import layer_times as times_module
from magus.advisor.steps.layer_times import LayerAnswer, LayerPass, LayerQuestion, LayerTimes, PassTicks
from magus.advisor.steps.outcome import StepLayout, outcome_of, run_of
from magus.advisor.steps.search import SHOWN, TIE, recommended, search, simulate_ahead
from magus.advisor.steps.space import schedules_of
from magus.advisor.steps.times import send_ticks, traffic_ticks
from magus.advisor.work.pools import Submit, open_processes, open_threads
from magus.compiler.ir import Pattern, Settings, never, silent
from magus.compiler.ir.step import Overlapped, Pipeline, PipelineKind, StepScenario, StepSchedule
from magus.compiler.planning.build import ScheduleError
from magus.tui.text.step import searched_text
from tests.helpers.some import some
from tests.helpers.steps import small_step

EXPLORE = """
schedule turns for train { pipeline one_f_one_b; overlap gradients, weights }
explore train { TP 1, 2, 4; PP 1, 2, 4; pipeline one_f_one_b, interleaved(chunks=2); zero 1, 3 }
"""


def _compile(settings: Settings) -> StepScenario:
    return small_step(EXPLORE, **{name: int(value) for name, value in settings})


@pytest.fixture(scope="module")
def times() -> LayerTimes:
    return LayerTimes()


@pytest.mark.slow
def test_each_layout_has_one_fate(times: LayerTimes) -> None:
    """All layouts and schedules do not divide, do not fit or are simulated; the fastest is recommended but for ties."""
    step = small_step(EXPLORE)
    found = search(step, _compile, times)
    assert found.num_layouts == found.impossible + found.too_large + found.slower + len(found.outcomes) > 10
    seconds = [each.seconds for each in found.outcomes[:SHOWN]]
    assert seconds == sorted(seconds)
    chosen = recommended(found)
    assert chosen is not None and chosen.seconds <= seconds[0] * (1 + TIE)
    assert [each.schedule.name for each in found.declared] == ["turns"]


@pytest.mark.parametrize("framework", ["", "DeepSpeed"])
def test_what_is_not_simulated_is_slower_than_what_is_shown(framework: str, times: LayerTimes) -> None:
    """With every layout simulated the answer is the same, and the others are behind those that it shows."""
    step = small_step(EXPLORE)
    few = search(step, _compile, times, shown=2, framework=framework)
    whole = search(step, _compile, times, shown=2, framework=framework, every=True)
    assert few.slower > 0 == whole.slower and len(whole.outcomes) == len(few.outcomes) + few.slower
    assert few.usable[:2] == whole.usable[:2] and recommended(few) == recommended(whole)
    simulated = [(each.settings, each.schedule.name) for each in few.outcomes]
    others = [each for each in whole.outcomes if (each.settings, each.schedule.name) not in simulated]
    assert others and min(each.run.makespan_ticks for each in others) >= few.usable[1].run.makespan_ticks


def test_what_does_not_tie_is_shown_as_no_faster(times: LayerTimes) -> None:
    """All that is close has traffic beside its layers; the others are behind, and would be further with it."""
    found = search(small_step(EXPLORE), _compile, times, every=True)
    best, close = found.outcomes[0], found.outcomes[: found.contended]
    rest = found.outcomes[found.contended :]
    assert rest and 0 < found.contended < SHOWN
    assert min(each.seconds for each in rest) > (1 + TIE) * best.seconds
    for each in (*close, rest[0]):
        again = outcome_of(each.scenario, each.schedule, times, each.settings)
        assert (again.seconds == each.seconds) if each in close else (again.seconds >= each.seconds)
    lines = searched_text(small_step(EXPLORE), found).splitlines()
    assert sum(" from +" in line for line in lines) == SHOWN - found.contended


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_no_step_is_faster_than_with_its_kernels_alone(tp: int, times: LayerTimes) -> None:
    for pp in (1, 2):
        step = small_step(TP=tp, PP=pp)
        for schedule in some(schedules_of(small_step(EXPLORE, TP=tp, PP=pp))):
            least = run_of(step, schedule, replace(times, least=True)).makespan_ticks
            took = run_of(step, schedule, times).makespan_ticks
            assert 0.3 * took < least <= took


def test_a_layout_is_what_its_file_says(times: LayerTimes) -> None:
    """An outcome of the search is that of the file with its parameters set so."""
    step = small_step(EXPLORE)
    best = search(step, _compile, times).outcomes[0]
    again = outcome_of(_compile(best.settings), best.schedule, times, best.settings)
    assert again.run == best.run and again.memory == best.memory


def test_layers_are_simulated_once(times: LayerTimes) -> None:
    """Layouts that have the same layers share their times: TP 1, 2 and 4, forward and backward."""
    search(small_step(EXPLORE), _compile, times)
    assert times.num_simulated == 2 * 3


def test_traffic_beside_layers_takes_something_from_them(times: LayerTimes) -> None:
    """A step is no faster with traffic simulated beside its layers, and some layer takes longer beside it."""
    schedule = StepSchedule("s", overlapped=tuple(Overlapped))
    step = small_step(TP=1, PP=2)
    apart, beside = (outcome_of(step, schedule, replace(times, contended=each)) for each in (False, True))
    assert beside.seconds > apart.seconds
    assert beside.run.pipeline.makespan_ticks > apart.run.pipeline.makespan_ticks


def test_nothing_fits(times: LayerTimes) -> None:
    """Where no layout fits, the nearest is named with what it needs."""
    more = EXPLORE.replace("zero 1, 3 }", "zero 1, 3; memory <= 1 GiB }")
    found = search(small_step(more), lambda given: small_step(more, **{n: int(v) for n, v in given}), times)
    assert not found.outcomes and found.nearest is not None and max(found.nearest[2]) > 1 << 30
    assert recommended(found) is None


def test_schedules_of_the_space() -> None:
    """Weights in parts are for one stage; a step without a pipeline has one order, without copies no ZeRO."""
    assert [(each.pipeline.chunks, each.zero) for each in schedules_of(small_step(EXPLORE, PP=2))] == [(1, 1), (2, 1)]
    assert [each.zero for each in schedules_of(small_step(EXPLORE, PP=1))] == [1, 3]
    assert [each.zero for each in schedules_of(small_step(EXPLORE, TP=4, PP=2))] == [0, 0]


def test_pipelines_that_cannot_be_are_refused(times: LayerTimes) -> None:
    """More chunks than layers, or microbatches that do not divide, are refused with a hint."""
    step = small_step(PP=2)
    for pipeline in (Pipeline(PipelineKind.INTERLEAVED, 8), Pipeline(PipelineKind.DUAL)):
        with pytest.raises(ScheduleError) as caught:
            outcome_of(small_step(PP=2, ROWS=8192), StepSchedule("s", pipeline), times)
        assert caught.value.rejection.message
    assert outcome_of(step, StepSchedule("s", Pipeline(PipelineKind.DUAL)), times).seconds > 0


def test_traffic_follows_the_links() -> None:
    """Ranks of one node reduce over its switch; ranks of two nodes over their rails, at the rate of a NIC."""
    inside, across = small_step(TP=1, PP=2), small_step(TP=4, PP=1)
    near, far = (step.step.blocks[0].parts[0].copies for step in (inside, across))
    assert near is not None and near.fabric.topology.name == "switch"
    assert far is not None and far.fabric.node_size == 1
    size = 1 << 28
    slow, fast = (traffic_ticks(LayerTimes(), each, size, Pattern.REDUCE_SCATTER) for each in (far, near))
    assert slow == pytest.approx(size / 2 / 45e9 * 1e14, rel=0.01)
    assert fast < slow
    assert send_ticks(across, LayerTimes()) == 0 < send_ticks(inside, LayerTimes())


@pytest.mark.slow
def test_layers_side_by_side_give_the_same_answer() -> None:
    """Whoever simulates the layers, and in which order they end, the layouts are put together of the same times."""
    step = small_step(EXPLORE)
    alone = search(step, _compile, LayerTimes())

    for opened in (open_threads, open_processes):
        known = LayerTimes()
        with opened(2) as submit:
            beside = search(step, _compile, known, submit=submit)
        assert beside == alone
        assert known.noted is None and known.num_simulated == alone.layers_simulated


def test_layers_are_all_simulated_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """With others that simulate, the search itself simulates no layer by itself."""
    here = get_ident()
    simulated = list[int]()
    monkeypatch.setattr(times_module, "_simulated", _counted(times_module._simulated, simulated))
    with open_threads(2) as submit:
        found = search(small_step(EXPLORE), _compile, LayerTimes(), submit=submit)
    assert len(simulated) == found.layers_simulated and here not in simulated


@pytest.mark.parametrize("together", [None, (30, 30)])
@pytest.mark.parametrize("contended", [False, True])
def test_only_what_is_simulated_together_is_asked_alone(contended: bool, together: tuple[int, int] | None) -> None:
    """How long a layer and traffic take alone is asked where it is known how long they take together, and once."""
    asked = list[LayerQuestion]()

    def submit(_: object, question: LayerQuestion) -> Future[LayerAnswer]:
        asked.append(question)
        answered = Future[LayerAnswer]()
        of_layer = PassTicks(20, 5) if isinstance(question, LayerPass) else 10
        answered.set_result(together if isinstance(question, LayerBeside) else of_layer)
        return answered

    step, times = small_step(TP=1, PP=2), LayerTimes(contended=contended)
    layouts = [StepLayout(step, StepSchedule("s", overlapped=tuple(Overlapped)), ())]
    for _ in range(2):  # then all is known
        simulate_ahead(layouts, times, cast("Submit", submit), silent, never)

    assert len(asked) == len(set(asked)) > 2
    assert any(isinstance(each, LayerBeside) for each in asked) is contended
    alone = [each for each in asked if isinstance(each, Alone) and isinstance(each.what, GroupLayer)]
    assert bool(alone) is (contended and together is not None)


def _counted(simulated: Callable[..., Any], threads: list[int]) -> Callable[..., Any]:
    def counting(*question: Any) -> Any:
        threads.append(get_ident())
        return simulated(*question)

    return counting
