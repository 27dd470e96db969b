"""The vocabulary between the widgets, the background and the app."""

from dataclasses import dataclass

from textual.message import Message


@dataclass
class Progressed(Message):
    """A stage of the advice for the job ``job_id`` moved on; sent from a thread."""

    job_id: int
    stage: str
    done: int
    total: int


@dataclass
class CandidatePicked(Message):
    """The cursor stands on this candidate."""

    expression: str
