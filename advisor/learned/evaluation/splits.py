"""Families that are held out, each with a model of its own that was fitted to the rest."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from ..table import Labels

# One scenario of so many is held out where no family is.
ONE_IN = 4


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The scenarios whose family has ``value`` as its ``kind``; without a value every ``ONE_IN``-th scenario."""

    kind: str
    value: str = ""

    @property
    def name(self) -> str:
        """What a report calls it."""
        return f"{self.kind} {self.value}" if self.value else f"one {self.kind} in {ONE_IN}"

    def holds(self, labels: Labels) -> bool:
        """Whether the scenario of ``labels`` is held out."""
        return getattr(labels.family, self.kind) == self.value if self.value else labels.idx % ONE_IN == 0


SPLITS = (
    HeldOut("scenario"),
    HeldOut("gpu", "MI355X"),
    HeldOut("gpu", "B200"),
    HeldOut("topology", "ring"),
    HeldOut("pattern", "GEMM+AR"),
    HeldOut("model", "DeepSeek-V3"),
    HeldOut("size", "training"),
)


def sampled(labels: Sequence[Labels], limit: int, seed: int) -> list[Labels]:
    """Return ``limit`` of ``labels``, or all if there are fewer."""
    return Random(f"evaluate {seed}").sample(labels, min(limit, len(labels)))
