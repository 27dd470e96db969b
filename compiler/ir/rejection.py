"""Why something that was asked for cannot be: what every rule on what is feasible returns, and None if all is well."""

from dataclasses import dataclass

from ..codes import Code


@dataclass(frozen=True, slots=True)
class Rejection:
    """A diagnostic's code, a sentence, and what helps (empty if nothing is known to)."""

    code: Code
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return self.message
