"""Answers of this process, found again in microseconds."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

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
