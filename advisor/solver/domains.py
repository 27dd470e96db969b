"""Candidate values of each knob, and dominance rules that leave some out: plain data, no solver."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from ...compiler.collectives import ALGORITHM_BY_NAME, ALGORITHMS
from ...compiler.ir import (
    Direction,
    EngineChoice,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    Kernels,
    OpCase,
    OpChoice,
    PeerOrder,
    WaitPer,
)
from ...compiler.planning import knobs as known
from ...compiler.planning.knobs import Knob
from ...compiler.planning.knobs.base import CountValues, TileValues, value_text
from ...compiler.planning.knobs.engine import ENGINE, copying_sms, default_engine, reject_engine
from ...compiler.planning.knobs.execution import KERNEL, PER, SPLIT_K, TILE, TRANSFER, USUAL_WAIT, WAIT
from ...compiler.planning.knobs.structure import ALGORITHM, CHUNKS, DEPTH, ORDER, STREAMS, TEMPLATE
from ...compiler.templates import ALL_TEMPLATES, BASELINE, BY_NAME, Template
from ...compiler.templates.collective import DEFAULT_ALGORITHM, usual_algorithm

At = Mapping[Knob, Iterable[int]]
"""Digits of some knobs; those of the others are open."""
Codes = npt.NDArray[np.int64]
Digits = npt.NDArray[np.uint16]
Varied = dict[str, tuple[int | str, ...]]
"""Values of knobs by their words."""


def searched() -> tuple[Knob, ...]:
    """The knobs that a space varies, the most significant first."""
    return tuple(knob for knob in known.KNOBS if knob.explored)


@dataclass(frozen=True)
class Knobs:
    """The values that each knob may have, in the order in which choices are sorted.

    The code of a choice is a number with a digit a knob, which is the place of its value. Knobs before the first
    execution option say what moves and computes (its structure), the others how it is carried out.
    """

    values: Mapping[Knob, tuple[Any, ...]]

    @cached_property
    def weights(self) -> Mapping[Knob, int]:
        """The amount that one step of a knob adds to the code."""
        weights, weight = {}, 1
        for knob in reversed(list(self.values)):
            weights[knob] = weight
            weight *= len(self.values[knob])
        return weights

    @property
    def num_codes(self) -> int:
        """Combinations of all values, feasible or not."""
        return self.weights[TEMPLATE] * len(self.values[TEMPLATE])

    def digits(self, codes: Codes, knob: Knob) -> Digits:
        """The digit of ``knob`` in each code."""
        return (codes // self.weights[knob] % len(self.values[knob])).astype(np.uint16)

    def structures(self, codes: Codes) -> Codes:
        """Codes without how they are carried out."""
        options = next(knob for knob in self.values if knob.option)
        return codes // (self.weights[options] * len(self.values[options]))

    def choice_of(self, code: int) -> OpChoice:
        """The choice of a code."""
        value = {knob: values[code // self.weights[knob] % len(values)] for knob, values in self.values.items()}
        own = {knob.field: each for knob, each in value.items() if not knob.option}
        return OpChoice(
            **own, tactics=self._options(tuple((knob, each) for knob, each in value.items() if knob.option))
        )

    @cached_property
    def _made(self) -> dict[tuple[tuple[Knob, Any], ...], ExecutionOptions]:
        return {}

    def _options(self, values: tuple[tuple[Knob, Any], ...]) -> ExecutionOptions:
        """One object for all choices that are carried out alike."""
        if values not in self._made:
            self._made[values] = ExecutionOptions(**{knob.field: value for knob, value in values})
        return self._made[values]


class Choices(Sequence[OpChoice]):
    """Choices kept as codes, and made when they are looked at: a space may have a million."""

    def __init__(self, knobs: Knobs, codes: Codes) -> None:
        self.knobs, self.codes = knobs, codes

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[OpChoice]:
        return map(self.knobs.choice_of, self.codes.tolist())

    @overload
    def __getitem__(self, index: int) -> OpChoice: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[OpChoice, ...]: ...

    def __getitem__(self, index: int | slice) -> OpChoice | tuple[OpChoice, ...]:
        if isinstance(index, slice):
            return tuple(Choices(self.knobs, self.codes[index]))
        return self.knobs.choice_of(int(self.codes[index]))

    def varied(self) -> Varied:
        """The values of each knob that has several among these choices, by its word."""
        found = {knob: np.unique(self.knobs.digits(self.codes, knob)).tolist() for knob in self.knobs.values}
        return {
            knob.word: tuple(shown(knob, self.knobs.values[knob][digit]) for digit in digits)
            for knob, digits in found.items()
            if len(digits) > 1
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(mine == yours for mine, yours in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))


def shown(knob: Knob, value: object) -> int | str:
    """A value in the words of the language; ``usual`` for the empty name, ``all`` for no depth."""
    if not isinstance(value, int):
        return value_text(value) if value else "usual"
    return "all" if knob is DEPTH and not value else value


DEFAULT_PIECES = (1, 2, 4, 8, 16, 32)
# Of a lone collective: pieces follow each other through the steps of an algorithm, and finer ones only cost more.
LONE_PIECES = (1, 4, 16)
# Most pieces that are tried by default, times the ranks that stand for all: estimates take time by their product.
MOST_PIECES = 1024
# Algorithms that are tried by default beside kernels, and how many ranks may be simulated for all.
PASSING_ON = tuple(algorithm.name for algorithm in ALGORITHMS if algorithm.passes_on)
MOST_RANKS_SIMULATED = 16

Domains = Mapping[Knob, tuple[Any, ...]]
"""Candidate values of each knob, before any rule; of streams and algorithms none where each template tries its own."""


def domains_of(scenario: OpCase) -> Domains:
    """The values that ``scenario`` asks for, defaults where it leaves the choice; the baseline is always among them."""
    explore = scenario.explore
    domains = {knob: explore.values(knob.word) or (knob.usual,) for knob in searched()}
    requested = explore.values(TEMPLATE.word) or tuple(template.name for template in _searched(scenario))
    names = tuple(each.name for each in ALL_TEMPLATES if each is BASELINE or each.name in requested)
    tiling = {knob: tuple(sorted(set(explore.values(knob.word)))) for knob in (TILE, SPLIT_K)}
    if any(tiling.values()) and not explore.values(KERNEL.word):
        domains[KERNEL] = (KERNEL.usual, Kernels.PERSISTENT)
    waits = explore.values(WAIT.word) or tuple(USUAL_WAIT[kernel] for kernel in domains[KERNEL])
    own = {
        TEMPLATE: names,
        CHUNKS: tuple(sorted(set(explore.values(CHUNKS.word)))) or _default_chunks(scenario),
        ENGINE: _engines(scenario),
        STREAMS: tuple(sorted(set(explore.values(STREAMS.word)))),
        ALGORITHM: explore.values(ALGORITHM.word),
        WAIT: waits,
        DEPTH: (DEPTH.usual, *sorted(set(explore.values(DEPTH.word)))),
    }
    always = domains[KERNEL] == (Kernels.PERSISTENT,)
    own |= {knob: of if of and always else tuple(sorted({knob.usual, *of})) for knob, of in tiling.items()}
    return {**domains, **own}


def _default_chunks(scenario: OpCase) -> tuple[int, ...]:
    """Pieces that are tried by default: one for each rank, and more as far as plans do not become too long."""
    pieces = LONE_PIECES if scenario.shape.compute is None else DEFAULT_PIECES
    counts = [scenario.num_ranks * count for count in pieces]
    return (counts[0], *(count for count in counts[1:] if count * scenario.network.period <= MOST_PIECES))


def knobs_of(scenario: OpCase, domains: Domains) -> Knobs:
    """The values that knobs may have anywhere in the space of ``domains``.

    They are more than what is asked for: where a template does not have a knob it stands at its usual value, and that a
    value is not asked for is a rule, which can then be named where nothing is feasible.
    """
    n, templates = scenario.num_ranks, [BY_NAME[name] for name in domains[TEMPLATE]]
    streams = {count for template in templates for count in (*streams_of(template), *domains[STREAMS])}
    algorithms = {name for template in templates for name in algorithms_of(scenario, template, domains)}
    own = {
        TEMPLATE: domains[TEMPLATE],
        CHUNKS: tuple(sorted({n, *domains[CHUNKS], *(n * pieces for pieces in DEFAULT_PIECES)})),
        ENGINE: tuple(sorted(domains[ENGINE], key=_engine_place)),
        STREAMS: tuple(sorted(streams)),
        ALGORITHM: ("", *(name for name in ALGORITHM_BY_NAME if name in algorithms)),
    }
    return Knobs({knob: own[knob] if knob in own else _widened(knob, domains[knob]) for knob in domains})


def _widened(knob: Knob, requested: tuple[Any, ...]) -> tuple[Any, ...]:
    """The usual value alone if no other was asked for; else counts with those asked for, words with all there are."""
    if requested == (knob.usual,):
        return requested
    if isinstance(knob.values, CountValues | TileValues):
        return tuple(sorted({knob.usual, *requested}))
    return tuple(dict.fromkeys((knob.usual, *knob.every())))


def _engine_place(engine: EngineChoice) -> tuple[int, int, int]:
    return tuple(EngineKind).index(engine.kind), engine.count, tuple(EngineMode).index(engine.mode)


def has_knob(scenario: OpCase, template: Template, knob: Knob) -> bool:
    """Whether the value of ``knob`` makes a difference for a template here."""
    return knob.has(template) and not (knob.of_transfers and scenario.shape.moved is None)


def candidates_of(scenario: OpCase, domains: Domains, template: Template, knob: Knob) -> tuple[Any, ...]:
    """Candidate values of one knob for one template: the usual one where it makes no difference."""
    if not has_knob(scenario, template, knob):
        return (scenario.num_ranks if knob is CHUNKS else knob.usual,)
    if knob is ALGORITHM:
        return algorithms_of(scenario, template, domains)
    if knob is STREAMS:
        return domains[STREAMS] or streams_of(template)
    return domains[knob]


def algorithms_of(scenario: OpCase, template: Template, domains: Domains) -> tuple[str, ...]:
    """Candidate algorithms of a template, empty for its usual one.

    Of a lone collective algorithms are templates. Where a file names none, a template that is built around one is tried
    with all if the file names that, else with those that pass on; one that merely contains the direct exchange with the
    usual one, and with those where they pay.
    """
    shape = scenario.shape
    if not template.has("algorithm") or shape.moved is None or shape.compute is None:
        return ("",)
    around = template.default_algorithm != DEFAULT_ALGORITHM
    usual = usual_algorithm(shape.pattern, template.default_algorithm)
    named = tuple(ALGORITHM_BY_NAME) if template.name in scenario.explore.values(TEMPLATE.word) else PASSING_ON
    beside = (usual, *PASSING_ON) if passing_on_pays(scenario) else (usual,)
    names = domains[ALGORITHM] or (named if around else beside)
    if template is BASELINE and usual not in names:  # the baseline stays, whatever is asked for
        names = (usual, *names)
    twins = {algorithm for algorithm, twin in template.twins if algorithm != usual and twin in domains[TEMPLATE]}
    return tuple("" if name == usual else name for name in names if name not in twins)


def _searched(scenario: OpCase) -> tuple[Template, ...]:
    """Templates that are tried by default: algorithms for a lone collective, ``bulk`` where two run side by side."""
    pattern = scenario.shape.pattern
    tried = pattern if passing_on_pays(scenario) or not pattern.overlaps else None
    fitting = (each for each in ALL_TEMPLATES if each.explored or tried in each.patterns)
    return tuple(each for each in fitting if not each.has("lanes"))  # others are made by searches of their own


def passing_on_pays(scenario: OpCase) -> bool:
    """Whether algorithms that pass blocks on are tried by default: ways between ranks have several links.

    Not where many ranks see different fabrics, since each of them is then simulated.
    """
    return not scenario.system.fabric.direct and scenario.network.period <= MOST_RANKS_SIMULATED


def streams_of(template: Template) -> tuple[int, ...]:
    """Candidate numbers of streams: one, and the template's default where it has several."""
    return tuple(sorted({1, template.default_streams}))


def _engines(scenario: OpCase) -> tuple[EngineChoice, ...]:
    """Engines asked for, or one DMA engine a peer and a few numbers of copying SMs; one choice for a lone kernel."""
    engines = tuple(dict.fromkeys(scenario.explore.values(ENGINE.word))) or _default_engines(scenario)
    if scenario.shape.moved is None:
        return (next((engine for engine in engines if is_granted(scenario, engine)), engines[0]),)
    return engines


def _default_engines(scenario: OpCase) -> tuple[EngineChoice, ...]:
    dma = [default_engine(scenario.system)] if scenario.gpu.dma.engines else []
    return (*dma, *copying_sms(scenario.gpu))


def is_granted(scenario: OpCase, engine: EngineChoice) -> bool:
    """Whether the GPU has such an engine."""
    return reject_engine(scenario.gpu, engine) is None


Values = dict[Knob, tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Dominance:
    """A rule: ``left_out`` says which values together, given the scenario and the request."""

    name: str
    sentence: str
    left_out: Callable[[OpCase, Domains], Iterator[Values]]


def _mirrored(scenario: OpCase, domains: Domains) -> Iterator[Values]:
    mirror = scenario.system.fabric.direct
    if mirror and not scenario.shape.uneven and PeerOrder.ROTATED in domains[ORDER]:
        yield {ORDER: (PeerOrder.REVERSED,)}


def _one_target(scenario: OpCase, domains: Domains) -> Iterator[Values]:
    if scenario.network.symmetric and not scenario.shape.uneven and PeerOrder.ROTATED in domains[ORDER]:
        yield {ORDER: (PeerOrder.ABSOLUTE,)}


def _looked_again(scenario: OpCase, domains: Domains) -> Iterator[Values]:
    if WaitPer.CHUNK in domains[PER]:
        yield {PER: (WaitPer.TILE,)}


def _requested_first(scenario: OpCase, domains: Domains) -> Iterator[Values]:
    if Direction.PUT in domains[TRANSFER] and not scenario.shape.pattern.sums:
        engines = tuple(engine for engine in domains[ENGINE] if engine.kind is EngineKind.DMA)
        yield {ENGINE: engines, TRANSFER: (Direction.GET,), DEPTH: (0,)}


RULES: tuple[Dominance, ...] = (
    Dominance("mirror", "on a fabric that is its own mirror image reversed is as fast as rotated", _mirrored),
    Dominance("one_target", "ranks that all serve the same one at a time are not faster than in turns", _one_target),
    Dominance("look_again", "looking for every tile is not faster than once for a chunk", _looked_again),
    Dominance("asked_first", "a get by a copy engine that holds everything is not faster than a put", _requested_first),
)


def left_out(rule: Dominance, scenario: OpCase, domains: Domains, knobs: Knobs) -> list[At]:
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
