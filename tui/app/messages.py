"""Messages between the widgets, the threads and the app."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from ...compiler.changed import Changes
    from .session.session import AnyAdvice
    from .session.sweep import Point


@dataclass
class Progressed(Message):
    """Progress of a stage of the advice for the job ``job_id``; sent from a thread."""

    job_id: int
    stage: str
    done: int
    total: int


@dataclass
class CandidatePicked(Message):
    """The cursor has moved to this candidate."""

    expression: str


@dataclass
class AllWanted(Message):
    """The answers of all workloads of the file are wanted."""


@dataclass
class Answered(Message):
    """What would be answered now for the job ``job_id``; sent from a thread."""

    job_id: int
    advice: AnyAdvice


@dataclass
class ChangesMade(Message):
    """The user has changed values of the file, which compiles with them."""

    changes: Changes


@dataclass
class SweepProgressed(Message):
    """A point on an axis of the job ``job_id``, or why there is none; sent from a thread."""

    job_id: int
    axis: str
    found: Point | str
