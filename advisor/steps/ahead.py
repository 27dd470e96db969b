"""Layers of many layouts simulated side by side, before the layouts are put together of them one after the other.

What is asked ahead is what the layouts would ask, so that the answer is the same however many work on it.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TypeVar

from ...compiler.ir import Progress, ShouldStop, never
from ...compiler.ir.step import StepScenario, StepSchedule
from ...compiler.planning.build import ScheduleError
from ..work.on_dask import Cluster
from ..work.pools import Submit, open_threads, result_of
from .layer_times import LayerAnswer, LayerQuestion, LayerTimes
from .outcome import chunks_of, updated_of
from .times import ticks_of

Layout = tuple[StepScenario, StepSchedule]


Argument = TypeVar("Argument")
T = TypeVar("T")


@contextmanager
def on_cluster(address: str) -> Iterator[Submit]:
    """Yield what has functions run by the workers of the dask scheduler at ``address``.

    Raises
    ------
    BackendError
        If dask is not installed, or nobody answers there.
    """
    cluster: Cluster[tuple[Callable[..., object], object], object] = Cluster(address, _called)

    def ask(call: tuple[Callable[[Argument, ShouldStop], T], Argument], should_stop: ShouldStop) -> T:
        return cluster.ask(call, should_stop)  # type: ignore[return-value]  # what the function returns

    with open_threads(cluster.count, cluster.close) as begin:

        def submit(function: Callable[[Argument, ShouldStop], T], argument: Argument) -> Future[T]:
            return begin(ask, (function, argument))

        yield submit


def _called(call: tuple[Callable[..., object], object]) -> object:
    """At a worker."""
    function, argument = call
    return function(argument, never)


def simulate_ahead(
    layouts: Sequence[Layout],
    times: LayerTimes,
    submit: Submit,
    report: Progress,
    should_stop: ShouldStop,
) -> None:
    """Let ``times`` know all layers of ``layouts``, simulated side by side.

    Raises
    ------
    Cancelled
        If ``should_stop`` returned true first; what was known by then is kept.
    """
    unknown = dict.fromkeys(question for layout in layouts for question in _unknown(layout, times))
    futures = [(question, submit(_answered, question)) for question in unknown]
    for number, (question, future) in enumerate(futures):
        report("layers ahead", number, len(futures))
        with suppress(ScheduleError):  # whoever asks again is told
            times.take(question, result_of(future, should_stop))


def _answered(question: LayerQuestion, should_stop: ShouldStop) -> LayerAnswer:
    return question.ticks(should_stop)


def is_known(layout: Layout, times: LayerTimes) -> bool:
    """Whether ``times`` has all layers of a layout, which can be."""
    with suppress(ScheduleError):
        chunks_of(*layout)
        return not _unknown(layout, times)
    return False


def _unknown(layout: Layout, times: LayerTimes) -> tuple[LayerQuestion, ...]:
    """What a layout would ask that is not known; nothing of one that cannot be."""
    (scenario, schedule), noted = layout, dict[LayerQuestion, None]()
    with suppress(ScheduleError):
        updated = updated_of(scenario, schedule, chunks_of(scenario, schedule))
        ticks_of(scenario, schedule, replace(times, noted=noted), updated)
    return tuple(noted)
