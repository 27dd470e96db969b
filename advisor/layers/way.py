"""One way to carry out an op of a workload, with its times alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...compiler.ir import OpMode


@dataclass(frozen=True, slots=True)
class Way:
    """One way to carry out an op, with its times in ticks.

    An op that is not ``is_apart`` takes ``total`` from its begin on: its kernels run until ``kernel``, and copies from
    ``copies[0]`` to ``copies[1]``. Apart the kernel takes ``kernel`` and the collective ``copies[1]``, each from its
    own begin. A lone kernel has no copies, and a lone collective no kernel. ``sums`` of a collective that is a part of
    its own hold the SMs of kernels at its end. One that is ``paced`` is slower than it could be. ``with_next`` is the
    time together with the GEMM that is cut along it, 0 without one; ``is_for_next`` is one that only this speaks for.
    """

    mode: OpMode
    total: int
    kernel: int
    copies: tuple[int, int]
    staging_bytes: int = 0
    sums: int = 0
    is_paced: bool = False
    with_next: int = 0
    is_for_next: bool = False

    @property
    def is_apart(self) -> bool:
        """Whether kernel and collective of a pair are parts of their own."""
        return self.mode.apart is not None

    @property
    def is_whole(self) -> bool:
        """Whether the collective is a part of its own: of a pair that is apart, or alone."""
        return self.is_apart or not self.kernel

    def beats(self, other: "Way") -> bool:
        """Whether it is no worse in anything, and better in something."""
        mine, theirs = self._costs(), other._costs()
        return mine != theirs and all(one <= another for one, another in zip(mine, theirs, strict=True))

    def _costs(self) -> tuple[int, ...]:
        return self.total, self.kernel, self.copies[1], self.staging_bytes


def fastest_alone(ways: Sequence[Way]) -> Way:
    """Return the way that is fastest alone: what is best for the op if nothing else runs."""
    return min(ways, key=lambda way: way.total)


def fastest_with_next(ways: Sequence[Way]) -> Way:
    """Return the way that is fastest together with the GEMM that is cut along it, or alone where there is none."""
    return min(ways, key=lambda way: way.with_next or way.total)
