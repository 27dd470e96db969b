"""Answers that another process gives, or a worker of a cluster: what it is asked, and what it does."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from ...compiler.ir import Scenario, never
from ...simcore.memo.memo import ADVISOR, sources_digest, use, user_store
from ..answer.stages import AdviceOptions, Watcher
from ..candidates.advice import Advice
from ..learned.model_file import load as load_proposals
from ..learned.proposal_model import ALONE, Near, ProposalModel
from ..work.on_dask import BackendError
from ..work.processes import Caller
from .computing import computed_advice
from .kept import place_of


@dataclass(frozen=True, slots=True)
class Requested:
    """A question to another process, what is known ``near`` it, and whether to report answers on the way."""

    subject: Scenario
    options: AdviceOptions
    watched: bool = False
    near: Near = ALONE


def answer_there(proposals: ProposalModel | None, requested: Requested, caller: Caller) -> Advice:
    """Return the answer, in a process; a time limit counts from the moment of the question."""
    subject, options = requested.subject, requested.options

    def progress(stage: str, done: int, total: int) -> None:
        caller.tell((stage, done, total))

    answered = caller.tell if requested.watched else None
    return computed_advice(
        model_near(proposals, requested.near),
        subject,
        options,
        Watcher(progress, caller.should_stop, answered, caller.waited_s),
    )


def answer_at_worker(digests: tuple[str, str], keeps: bool, requested: Requested) -> Advice:
    """Return the answer at a worker of a cluster, which ``keeps`` results for itself too, and answers from them.

    Workers that share a folder compute an answer once, whoever asks for it and however often.

    Raises
    ------
    BackendError
        As ``check_worker``.
    """
    check_worker(digests, keeps)
    alone = replace(requested, options=replace(requested.options, workers=1))
    proposals, caller = shipped_proposals(), Caller(lambda what: None, never, 0.0)
    subject, options, near = requested.subject, requested.options, model_near(proposals, requested.near)
    if subject.only_case is None:  # what is jointly simulated is kept where it is
        return answer_there(proposals, alone, caller)
    place = place_of(near, subject, options)
    with place.alone():  # who asked before may have been killed while a worker went on, or as its answer arrived
        return place.recall() or answer_there(proposals, alone, caller)


def check_worker(digests: tuple[str, str], keeps: bool) -> None:
    """Begin a task at a worker of a cluster, which ``keeps`` results for itself too.

    Raises
    ------
    BackendError
        If the sources of Magus here, or the shipped model, have other digests.
    """
    if digests != digests_here():
        message = "a worker has another version of Magus, Python or numpy, or another model"
        raise BackendError(message, "install the same versions on all machines")
    use(user_store() if keeps else None)


@cache
def digests_here() -> tuple[str, str]:
    """Return what says which version of Magus and of the shipped model is here."""
    return sources_digest(ADVISOR), shipped_proposals().digest


@cache
def shipped_proposals() -> ProposalModel:
    """Return the shipped model, read once in a process: that takes four times as long as a short answer.

    Raises
    ------
    ModelError
        As ``load_proposals``.
    """
    return load_proposals(None)[0]


def reported_by(watcher: Watcher) -> Callable[[object], None]:
    """Return the receiver of what ``answer_there`` reports."""

    def tell(what: object) -> None:
        if isinstance(what, tuple):
            watcher.progress(*what)
        elif watcher.answered is not None and isinstance(what, Advice):
            watcher.answered(what)

    return tell


def model_near(proposals: ProposalModel | None, near: Near) -> ProposalModel | None:
    """Return the model; it prefers schedules that won at sizes ``near`` by."""
    return proposals if proposals is None or near == ALONE else replace(proposals, near=near)
