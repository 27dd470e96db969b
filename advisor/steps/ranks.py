"""How the ranks of a stage lie: in groups that compute a layer, beside others with the same weights."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import gcd, lcm, prod

from ...compiler.ir import DType, Scenario, Shard, System
from ...compiler.ir.step import LayerPart, StepScenario, handed_on
from .plans import refused

Span = tuple[int, int]
"""Ranks that lie along axes: how far apart neighbours are, and how many there are."""


@dataclass(frozen=True, slots=True)
class StageRanks:
    """The ranks of a stage, and what lies along them.

    Attributes
    ----------
    size
        How many there are.
    far
        How far apart in their numbers stages are; ranks of one stage are numbered without the others.
    groups
        Of each workload of layers, the ranks that compute it together.
    contexts
        Of each, those that have parts of the same sequences; one rank where it has whole ones.
    """

    size: int
    far: int
    groups: tuple[Span, ...]
    contexts: tuple[Span, ...]

    @property
    def parts(self) -> int:
        """On how many ranks a sequence lies."""
        return max(size for _, size in self.contexts)

    @property
    def _spans(self) -> list[Span]:
        return [each for each in (*self.groups, *self.contexts) if each[1] > 1]

    @property
    def near(self) -> int:
        """How far apart the ranks of a pipeline are, which compute a pass together."""
        return gcd(*(stride for stride, _ in self._spans)) or 1

    @property
    def pipelines(self) -> int:
        """How many pipelines there are, whose ranks on a stage share no pass."""
        return self.size // self._places

    @property
    def _places(self) -> int:
        return lcm(*map(prod, self._spans)) // self.near

    def places(self, span: Span) -> tuple[tuple[int, ...], ...]:
        """Return the ranks of a pipeline by what they are along ``span``, each by its place in its pipeline."""
        stride, size = (span[0] // self.near, span[1]) if span[1] > 1 else (1, 1)
        firsts = (place for place in range(self._places) if place // stride % size == 0)
        return tuple(tuple(first + index * stride for index in range(size)) for first in firsts)

    def fewer(self, copies: int, parts: int) -> "StageRanks":
        """Return fewer ranks: groups of whole size, ``copies`` of them, on ``parts`` of which a sequence lies.

        A sequence stays on as many ranks as it is where these are of one group. Ranks that lie in no such way that
        they can be left out stay.
        """
        ends = {bound for stride, size in self._spans for bound in (stride, stride * size)}
        bounds = sorted({1, self.size} | ends)
        if any(outer % inner for inner, outer in pairwise(bounds)):
            return self
        left, new = copies // parts, {1: 1}
        for inner, outer in reversed(list(pairwise(bounds))):
            size = outer // inner
            if not self._holds(self.groups, inner, outer):
                size = parts if self._holds(self.contexts, inner, outer) else min(size, left)
                left = left if self._holds(self.contexts, inner, outer) else left // size
            new[outer] = size
        for inner, outer in pairwise(bounds):
            new[outer] *= new[inner]
        size = new[self.size]
        groups, contexts = (
            tuple((new[stride], new[stride * count] // new[stride]) if count > 1 else (1, 1) for stride, count in spans)
            for spans in (self.groups, self.contexts)
        )
        return replace(self, size=size, far=size, groups=groups, contexts=contexts)

    @staticmethod
    def _holds(spans: Sequence[Span], inner: int, outer: int) -> bool:
        return any(size > 1 and stride <= inner and outer <= stride * size for stride, size in spans)


def ranks_of_stage(scenario: StepScenario, parts: Sequence[LayerPart]) -> StageRanks:
    """Return the ranks of a stage of a step, whose layers have these ``parts``."""
    size = scenario.system.num_ranks // scenario.num_stages
    far = next((axis.stride for axis in scenario.system.mesh if axis.name == "pp" and axis.size > 1), size)

    def span(group: System | None) -> Span:
        if group is None or group.num_ranks == 1:
            return 1, 1
        axes = {axis.name: axis.stride for axis in scenario.system.mesh}
        strides = [axes[name] for name in group.name.split(".")[1:] if name in axes] or [1]
        stride = min(strides)
        return stride if stride <= far else stride // scenario.num_stages, group.num_ranks

    groups = tuple(span(part.forward.system) for part in parts)
    return StageRanks(size, far, groups, tuple(span(part.context) for part in parts))


def check_handed_on(ranks: StageRanks, layers: Sequence[Scenario]) -> None:
    """Check that ranks of a group hand on what those of another one take, where workloads have groups of their own.

    Raises
    ------
    RunRefused
        If they do not.
    """
    whole = [each.name for each in layers if handed_on(each).shard is Shard.NONE and each.num_ranks > 1]
    shards = (handed_on(each).shard for each in layers)
    if whole and len(set(zip(ranks.groups, shards, strict=True))) > 1:
        hint = "shard it by rows: x = tensor bf16[...] shard rows"
        raise refused(f"ranks of {whole[0]} have all of what they hand to those of other workloads", hint)
    for other in layers[1:]:
        if _of_rank(other) != _of_rank(layers[0]):
            raise refused(f"ranks of {other.name} and of {layers[0].name} hand on tensors of other sizes or types")


def _of_rank(forward: Scenario) -> tuple[int, int, DType]:
    """Rows and columns that a rank has of what a layer hands on, and their type."""
    tensor = handed_on(forward)
    return *tensor.shape_at(forward.num_ranks), tensor.dtype
