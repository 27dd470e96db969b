"""Messages between the widgets, the threads and the app."""

from dataclasses import dataclass

from textual.message import Message


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
