"""Advice on disk: the answer to the same question, with the schedules of candidates written as their choices.

Building a schedule again takes a third of the time that reading its steps takes, and a tenth of the space.
"""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from ..compiler.ir import Choice, GraphScenario, Scenario
from ..compiler.planning.build import ScheduleError, build_schedule
from ..simcore.memo.codec import MalformedError, decode, encode
from ..simcore.memo.memo import ADVISOR, Memo, current_store, memo_of, use
from ..simcore.memo.store import Store, user_store
from .candidates.advice import Advice, Source

log = logging.getLogger(__name__)


def keep_results(folder: Path | None = None) -> None:
    """Keep results of advice and of simulations on disk from now on, in all threads.

    ``folder`` is by default that of the commands: ``MAGUS_CACHE_DIR``, else in the user's cache folder. Processes may
    share it, and may be killed at any time: an entry is written whole or not at all. Without a place nothing is kept.
    """
    use(user_store() if folder is None else Store(folder))


@dataclass(frozen=True, slots=True)
class KeptAdvice:
    """The place of the advice for ``scenario`` of one op, the ``case``: a line with choices, and one with the rest."""

    scenario: GraphScenario
    case: Scenario
    memo: Memo | None

    @classmethod
    def of(cls, proposals: str, scenario: GraphScenario, options: object) -> "KeptAdvice":
        """Return the place of advice with the model of the digest ``proposals`` under ``options``."""
        case = scenario.case
        if current_store() is None:
            return cls(scenario, case, None)
        asked = ("advise", case, options, proposals, _solver_version())
        return cls(scenario, case, memo_of(asked, ADVISOR))

    @property
    def is_filled(self) -> bool:
        """Whether something is kept there."""
        return self.memo is not None and self.memo.read() is not None

    def recall(self) -> Advice | None:
        """Return the advice, None if it is not known."""
        data = None if self.memo is None else self.memo.read()
        if data is None:
            return None
        choices, _, rest = data.partition(b"\n")
        try:
            schedules = [build_schedule(self.case, choice) for choice in decode(choices, tuple[Choice, ...])]
            return replace(decode(rest, Advice, (self.scenario, *schedules)), source=Source.CACHE)
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


def _solver_version() -> str:
    """The version of OR-tools; empty where advice does without."""
    from importlib.metadata import PackageNotFoundError, version  # those who keep nothing do not wait for it

    try:
        return version("ortools")
    except PackageNotFoundError:
        return ""
