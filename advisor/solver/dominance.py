"""Dominance rules: assumptions that leave schedules out because others of the space are as fast.

They are no law of the machine. Each has a name and a sentence, ``explore`` switches them off, what they leave out is
counted, and ``tests/advisor/solver/test_dominance.py`` holds each against the simulator. None leaves out what has no
better in the same space. All are about knobs that a file must name to have them searched.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ...compiler.ir import Direction, EngineKind, PeerOrder, Scenario, WaitPer
from ...compiler.planning.knobs import Knob
from ...compiler.planning.knobs.engine import ENGINE
from ...compiler.planning.knobs.execution import PER, TRANSFER
from ...compiler.planning.knobs.structure import DEPTH, ORDER
from .domains import Domains
from .knobs import At, Codes, Knobs

Values = dict[Knob, tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Dominance:
    """A rule: ``left_out`` says which values together, given the scenario and what is asked for."""

    name: str
    sentence: str
    left_out: Callable[[Scenario, Domains], Iterator[Values]]


def _mirrored(scenario: Scenario, domains: Domains) -> Iterator[Values]:
    mirror = scenario.system.fabric.direct
    if mirror and not scenario.workload.uneven and PeerOrder.ROTATED in domains[ORDER]:
        yield {ORDER: (PeerOrder.REVERSED,)}


def _one_target(scenario: Scenario, domains: Domains) -> Iterator[Values]:
    if scenario.network.symmetric and not scenario.workload.uneven and PeerOrder.ROTATED in domains[ORDER]:
        yield {ORDER: (PeerOrder.ABSOLUTE,)}


def _looked_again(scenario: Scenario, domains: Domains) -> Iterator[Values]:
    if WaitPer.CHUNK in domains[PER]:
        yield {PER: (WaitPer.TILE,)}


def _asked_first(scenario: Scenario, domains: Domains) -> Iterator[Values]:
    if Direction.PUT in domains[TRANSFER] and not scenario.workload.pattern.sums:
        engines = tuple(engine for engine in domains[ENGINE] if engine.kind is EngineKind.DMA)
        yield {ENGINE: engines, TRANSFER: (Direction.GET,), DEPTH: (0,)}


RULES: tuple[Dominance, ...] = (
    Dominance("mirror", "on a fabric that is its own mirror image reversed is as fast as rotated", _mirrored),
    Dominance("one_target", "ranks that all serve the same one at a time are not faster than in turns", _one_target),
    Dominance("look_again", "looking for every tile is not faster than once for a chunk", _looked_again),
    Dominance("asked_first", "a get by a copy engine that holds everything is not faster than a put", _asked_first),
)


def left_out(rule: Dominance, scenario: Scenario, domains: Domains, knobs: Knobs) -> list[At]:
    """Digits that ``rule`` leaves out; none if a value that it names is not in the space."""
    found: list[At] = []
    for values in rule.left_out(scenario, domains):
        at = {
            knob: [knobs.values[knob].index(value) for value in each if value in knobs.values[knob]]
            for knob, each in values.items()
        }
        if all(at.values()):
            found.append(at)
    return found


def dominated(places: list[At], knobs: Knobs, codes: Codes) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of ``codes`` have digits that are left out."""
    out = np.zeros(len(codes), bool)
    for at in places:
        out |= np.logical_and.reduce([np.isin(knobs.digits(codes, knob), list(each)) for knob, each in at.items()])
    return out
