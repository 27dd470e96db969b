"""Errors of a corpus that its user can do something about."""

from ...compiler.codes import Code
from ...compiler.ir import Rejection


class CorpusError(Exception):
    """A corpus cannot be built or read; ``rejection`` has the code, the message and a hint."""

    def __init__(self, code: Code, message: str, hint: str) -> None:
        self.rejection = Rejection(code, message, hint)
        super().__init__(self.rejection)


class StoreError(CorpusError):
    """The store cannot be opened, read or written; what it holds is as before."""


class BackendError(CorpusError):
    """The processes or machines that are to search cannot be reached."""
