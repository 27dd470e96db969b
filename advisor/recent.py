"""Answers of this process, found again in microseconds."""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from .candidates.advice import Advice, Source

MAX_ANSWERS = 256


@dataclass(frozen=True, slots=True)
class RecentAnswers:
    """The last ``MAX_ANSWERS`` answers by their questions.

    Without a lock, which a child of ``fork`` might inherit closed: each step is one operation of a dict, and two
    threads that add the same answer add it twice.
    """

    _answers: dict[Hashable, Advice] = field(default_factory=dict)

    def recall(self, question: Hashable) -> Advice | None:
        """Return the answer, None if it is not known."""
        return self._answers.get(question)

    def keep(self, question: Hashable, advice: Advice) -> None:
        """Keep an answer that another run would give too."""
        if advice.interrupted or advice.notes:
            return
        self._answers[question] = replace(advice, source=Source.CACHE)
        while len(self._answers) > MAX_ANSWERS:
            self._answers.pop(next(iter(tuple(self._answers))), None)
