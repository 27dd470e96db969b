"""What every pane of the workbench is."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from textual.containers import Container
from textual.message import Message
from textual.widget import Widget

from ..session.step_job import AnyJob

J = TypeVar("J", bound=AnyJob)


class JobPane(Container, Generic[J]):
    """A pane that shows one aspect of the job on screen; most are mounted when they first come to the front.

    ``show`` is called when the pane comes to the front, and while it is visible whenever something of the job changes:
    its answer, the picked candidate, or a Result. It takes everything from the job, so that it may be called at any
    time. Keys of a pane are ``BINDINGS`` of its class or of what it holds; blocking work is a ``@work`` method of its
    own that awaits ``in_thread``.
    """

    @dataclass
    class Stands(Message):
        """A pane has its widgets, and can show a job."""

        pane: "JobPane[Any]"

    def on_mount(self) -> None:
        """Tell that ``show`` may be called."""
        self.post_message(self.Stands(self))

    @abstractmethod
    def show(self, job: J) -> None:
        """Show ``job`` as far as it is known."""

    @property
    def holds_changes(self) -> bool:
        """Whether the pane holds changes of the file that are not saved: then it is not read again by itself."""
        return False

    @property
    @abstractmethod
    def target(self) -> Widget:
        """The widget that takes the keys when the pane comes to the front."""

    def keeps(self, action: str) -> bool:
        """Whether the key of an action of the app is the pane's own now, as arrows are in a text."""
        return False
