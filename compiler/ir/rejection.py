"""The result of every rule on feasibility: a ``Rejection``, or None where the rule holds."""

from dataclasses import dataclass

from ..codes import Code


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a request is infeasible: a diagnostic code, a sentence, and a hint, which may be empty."""

    code: Code
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return self.message
