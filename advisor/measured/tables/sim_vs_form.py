"""Agreement of a simulated sample with the closed form."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

LIMIT = 0.02
"""Largest allowed difference of a simulated time from the closed form, as a share."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Differences of simulated times from the closed form, as shares of it.

    ``beyond`` is the number of rows above ``limit``, ``too_large`` the number that were not simulated.
    """

    gpu: str
    rows: int
    median: float
    largest: float
    worst: str
    beyond: int
    too_large: int = 0
    operation: str = "GEMM"

    @property
    def agrees(self) -> bool:
        """Whether no difference is above ``limit``."""
        return not self.beyond

    @property
    def limit(self) -> float:
        """The largest allowed difference."""
        return LIMIT

    @property
    def counted(self) -> str:
        """For instance ``200 GEMMs``, or ``63 of all_gather``."""
        return f"{self.rows} GEMMs" if self.operation == "GEMM" else f"{self.rows} of {self.operation}"


def agreement_of(
    gpu: str, operation: str, differences: Sequence[tuple[float, str]], too_large: int = 0
) -> Agreement | None:
    """Return the agreement of (difference, label of the row); None if nothing was simulated."""
    if not differences:
        return None
    largest, worst = max(differences)
    return Agreement(
        gpu=gpu,
        rows=len(differences),
        median=median(difference for difference, _ in differences),
        largest=largest,
        worst=worst,
        beyond=sum(difference > LIMIT for difference, _ in differences),
        too_large=too_large,
        operation=operation,
    )
