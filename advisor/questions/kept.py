"""Answers that are kept: the latest of an advisor in memory, those on one op on disk."""

import logging
from collections.abc import Hashable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

from ...compiler.ir import OpChoice, Scenario
from ...compiler.planning.build import ScheduleError, build_op_plan
from ...simcore.memo.codec import MalformedError, decode, encode
from ...simcore.memo.memo import ADVISOR, Memo, Store, current_store, memo_of, use, user_store
from ..answer.stages import AdviceOptions
from ..candidates.advice import Advice, AnswerSource
from ..learned.proposal_model import ALONE, ProposalModel

log = logging.getLogger(__name__)


MAX_ANSWERS = 256
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class RecentAnswers(Generic[AnswerT]):
    """The last ``MAX_ANSWERS`` answers by their questions.

    Without a lock, which a child of ``fork`` might inherit closed: each step is one operation of a dict, and two
    threads that add the same answer add it twice.
    """

    _answers: dict[Hashable, AnswerT] = field(default_factory=dict)

    def recall(self, question: Hashable) -> AnswerT | None:
        """Return the answer, None if it is not known."""
        return self._answers.get(question)

    def keep(self, question: Hashable, answer: AnswerT) -> None:
        """Keep an answer that another run would give too."""
        self._answers[question] = answer
        while len(self._answers) > MAX_ANSWERS:
            self._answers.pop(next(iter(tuple(self._answers))), None)


def keep_results(folder: Path | None = None) -> None:
    """Keep results of advice and of simulations on disk from now on, in all threads.

    ``folder`` is by default that of the commands: ``MAGUS_CACHE_DIR``, else in the user's cache folder. Processes may
    share it, and may be killed at any time: an entry is written whole or not at all. Without a place nothing is kept.
    """
    use(user_store() if folder is None else Store(folder))


@dataclass(frozen=True, slots=True)
class KeptAdvice:
    """The place of the advice for ``scenario`` of one op: a line with choices, and one with the rest."""

    scenario: Scenario
    memo: Memo | None

    @property
    def is_filled(self) -> bool:
        """Whether something is kept there."""
        return self.memo is not None and self.memo.read() is not None

    def alone(self) -> AbstractContextManager[None]:
        """Return a block in which no other process of this machine computes this advice."""
        return nullcontext() if self.memo is None else self.memo.alone()

    def recall(self) -> Advice | None:
        """Return the advice, None if it is not known."""
        data = None if self.memo is None else self.memo.read()
        if data is None:
            return None
        choices, _, rest = data.partition(b"\n")
        try:
            case = self.scenario.case
            schedules = [build_op_plan(case, choice) for choice in decode(choices, tuple[OpChoice, ...])]
            return replace(decode(rest, Advice, (self.scenario, *schedules)), source=AnswerSource.CACHE)
        except (MalformedError, ScheduleError):
            log.debug("the advice on disk is malformed", exc_info=True)
            return None

    def keep(self, advice: Advice) -> None:
        """Keep ``advice`` if another run would give the same: it was neither cut short, nor did a part of it fail."""
        if self.memo is None or advice.interrupted or advice.notes:
            return
        built = {candidate.choice: candidate.schedule for candidate in advice.candidates if candidate.choice}
        try:
            self.memo.write(encode(tuple(built)) + b"\n" + encode(advice, (self.scenario, *built.values())))
        except TypeError:
            log.debug("the advice cannot be kept", exc_info=True)


def place_of(proposals: ProposalModel | None, scenario: Scenario, options: AdviceOptions) -> KeptAdvice:
    """Return where the advice on ``scenario``, of one op, is kept on disk; nowhere if it depends on sizes near by.

    Time limits and numbers of workers do not change the place, since no kept answer depends on them.
    """
    others_decide = proposals is not None and proposals.near != ALONE
    if others_decide or current_store() is None:
        return KeptAdvice(scenario, None)
    digest, same = proposals.digest if proposals else "", replace(options, within_s=None, workers=1)
    return KeptAdvice(scenario, memo_of(("advise", scenario.case, same, digest, _solver_version()), ADVISOR))


def _solver_version() -> str:
    """The version of OR-tools; empty where advice does without."""
    from importlib.metadata import PackageNotFoundError, version  # those who keep nothing do not wait for it

    try:
        return version("ortools")
    except PackageNotFoundError:
        return ""
