"""One question about many models: answered here, or by the workers of a dask scheduler, and kept as answers come."""

import json
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

from ...compiler.ir import Cancelled, Counted, JsonObject, Rejection, ShouldStop, never
from ...compiler.request.request import RequestError
from ...simcore.memo.memo import ADVISOR, Memo, current_store, memo_of
from ..answer.stages import AdviceOptions, either
from ..work.on_dask import BackendError, Cluster
from ..work.pools import in_threads
from ..work.processes import ProcessDied
from .advisor import Advisor
from .ask import QUICK, ask
from .elsewhere import check_worker, digests_here
from .question import ModelQuestion


@dataclass(frozen=True, slots=True)
class ManyAnswers:
    """What is known of each question: the document of its answer (``magus-ask/1``), or why it cannot be asked.

    ``interrupted`` is whether some have neither: it was stopped, or ``lost`` says why nobody answers any longer.
    """

    answers: dict[ModelQuestion, JsonObject] = field(default_factory=dict)
    refused: dict[ModelQuestion, RequestError] = field(default_factory=dict)
    interrupted: bool = False
    lost: Rejection | None = None


def ask_many(
    questions: Sequence[ModelQuestion],
    options: AdviceOptions = QUICK,
    *,
    scheduler: str | None = None,
    progress: Counted | None = None,
    should_stop: ShouldStop | None = None,
) -> ManyAnswers:
    """Return the answers to ``questions``; those that are kept on disk are not asked again.

    Parameters
    ----------
    options
        As of ``ask``.
    scheduler
        The address of a dask scheduler, such as ``tcp://host:8786``, whose workers answer; None answers here.
    progress
        Called with the questions done and their number.
    should_stop
        Called now and then; once it returns true, what was answered until then is returned.

    Raises
    ------
    BackendError
        If dask is not installed, or nobody answers at ``scheduler``.
    """
    there = None if scheduler is None else _cluster(scheduler, options)
    different, found = tuple(dict.fromkeys(questions)), ManyAnswers()
    answer = partial(_answered, there, options, should_stop or never)
    with (
        nullcontext() if there is None else closing(there),
        in_threads(answer, 1 if there is None else there.count) as begin,
    ):
        for place, (question, wait) in enumerate(zip(different, begin(different), strict=True)):
            if progress is not None:
                progress(place, len(different))
            try:
                found.answers[question] = wait()
            except RequestError as error:
                found.refused[question] = error
            except Cancelled:
                return replace(found, interrupted=True)
            except BackendError as error:
                return replace(found, interrupted=True, lost=error.rejection)
    return found


_Found = tuple[JsonObject, bool]
"""An answer, and whether another run would give it too."""
_Workers = Cluster[ModelQuestion, _Found]


def _cluster(address: str, options: AdviceOptions) -> _Workers:
    there: _Workers = Cluster(address, partial(_at_worker, digests_here(), current_store() is not None, options))
    return there


def _answered(
    there: _Workers | None, options: AdviceOptions, also: ShouldStop, question: ModelQuestion, should_stop: ShouldStop
) -> JsonObject:
    """The answer to one question: kept, of a worker, or found here."""
    stop = either(should_stop, also)
    if stop():
        raise Cancelled
    place, here = _place(question, options), partial(_computed, question, options, stop)
    try:
        return _kept(place, here if there is None else partial(there.ask, question, stop))[0]
    except ProcessDied:  # workers died of it, again and again
        return _kept(place, here)[0]


def _at_worker(digests: tuple[str, str], keeps: bool, options: AdviceOptions, question: ModelQuestion) -> _Found:
    """At a worker, which answers one question at a time."""
    check_worker(digests, keeps)
    place = _place(question, options)
    with nullcontext() if place is None else place.alone():
        return _kept(place, partial(_computed, question, replace(options, workers=1), never))


def _computed(question: ModelQuestion, options: AdviceOptions, should_stop: ShouldStop) -> _Found:
    found = ask(question, Advisor.load(), options, should_stop)
    document = json.loads(json.dumps(found.document()))  # as it is read again where it was kept
    return document, not found.interrupted and not any(each.notes for each in found.advice)


def _place(question: ModelQuestion, options: AdviceOptions) -> Memo | None:
    """Where the answer is kept: any number of workers gives the same."""
    return memo_of(("ask", question, replace(options, workers=1), digests_here()[1]), ADVISOR)


def _kept(place: Memo | None, compute: Callable[[], _Found]) -> _Found:
    data = None if place is None else place.read()
    if data is not None:
        return json.loads(data), True
    found, lasts = compute()
    if place is not None and lasts:
        place.write(json.dumps(found).encode())
    return found, lasts
