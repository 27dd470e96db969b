"""Implementations: ``implementation flux { gpus H100; ag_gemm { schedule ...; path copy_engine; rate 100 %; ... } }``.

An implementation is read for one system, whose ranks and engines its schedules take. Each of its blocks is a method:
how it carries out a pattern, ``ag_gemm { schedule ...; path ...; call 40 us }``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TypeVar

from ...codes import Code
from ...ir import (
    DType,
    Implementation,
    Method,
    OpShape,
    Pattern,
    Provenance,
    Rejection,
    System,
)
from ...text import syntax as ast
from ...text.diagnostics import Report, Source, listing
from ...text.load import load
from ...text.names import Entry, Kind
from ...text.shipped import shipped_libraries
from ..values.device_numbers import Default, DeviceNumbers, default_of
from ..values.evaluate import ExpressionEvaluator, Place
from ..values.reading import Reading
from ..values.words import said_in
from .implementation_blocks import EXPERTS, STACK, Layer, read_experts, read_stack
from .method import MethodReader, names_said

T = TypeVar("T")

FOLDER = "implementations/"
_USUAL = 'use "nvidia/h100"\nsystem usual { gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }'


PATTERN_WORDS: Mapping[str, Pattern] = {
    pattern.value.replace("+", "_").lower(): pattern for pattern in Pattern if pattern.overlaps
}


def reject_implementation(implementation: Implementation, shape: OpShape) -> Rejection | None:
    """Why ``implementation`` cannot be predicted for ``shape``, None if it can."""
    name, method = implementation.name, implementation.method_of(shape)
    if implementation.experts is not None and shape.routing is not None:
        return None
    if method is None:
        does = f"it does {implementation.does}"
        return Rejection(Code.MGS530, f"{name} does not do {shape.pattern.value}", does)
    if method.missing:
        missing = ", ".join(method.missing)
        return Rejection(Code.MGS209, f"{name} cannot be predicted: {missing} not known", "say it, with its source")
    dtype = shape.gemm.dtype if shape.gemm is not None else None
    if dtype is not None and dtype not in implementation.dtypes:
        known = ", ".join(each.value for each in implementation.dtypes)
        return Rejection(Code.MGS530, f"{name} does not do {dtype.value}", f"it does {known}")
    return None


@dataclass(frozen=True, slots=True)
class _Parsed:
    """The statements of one implementation by their first word, and the origin of its numbers without notes."""

    entry: Entry
    said: Mapping[str, ast.Say]
    default: Default


class ImplementationReader:
    """Reads implementations for one system."""

    def __init__(self, system: System, reading: Reading) -> None:
        self._system, self._reading, self._report = system, reading, reading.report
        self._provenance: list[Provenance] = []

    def read(self, entry: Entry) -> Implementation:
        """Return the implementation that ``entry`` declares; report what is wrong with it."""
        failures_before = self._report.num_failures
        parsed = [self._parsed(each) for each in self._with_parents(entry)]
        said = {word: statement for each in parsed for word, statement in each.said.items()}
        self._provenance = []
        methods = tuple(self._methods(entry, parsed))
        experts = self._part(EXPERTS, parsed, lambda layers: read_experts(layers, self._reading))
        stack = self._part(STACK, parsed, lambda layers: read_stack(layers, self._reading))
        gpus, types = (names_said(said[word], self._report) if word in said else () for word in ("gpus", "dtypes"))
        dtypes = tuple(map(DType, types)) or tuple(each for each in DType if each.block == 1)
        nothing = not methods and experts is None and stack is None
        if nothing and self._report.num_failures == failures_before:
            hint = f"what it does is {listing((*PATTERN_WORDS, EXPERTS, STACK))}: ag_gemm {{ ... }}"
            message = f"implementation {entry.name} does nothing"
            self._report.error(Code.MGS209, message, entry.declaration.span, hint)
        if self._report.num_failures > failures_before or nothing:
            raise self._report.stop()
        return Implementation(entry.name, gpus, dtypes, methods, tuple(self._provenance), experts, stack)

    def _with_parents(self, entry: Entry) -> tuple[Entry, ...]:
        """Return the implementations that ``entry`` extends, the most distant first, and ``entry``."""
        line = [entry]
        while (path := line[0].device.parent) is not None:
            parent = line[0].scope.find(path, Kind.IMPLEMENTATION, self._report)
            if parent in line:
                raise self._report.fail(Code.MGS205, f"'{parent.name}' extends itself", path.span)
            line.insert(0, parent)
        return tuple(line)

    def _parsed(self, entry: Entry) -> _Parsed:
        """Return the statements of one implementation; report those that are unknown or said twice."""
        words = ("source", "gpus", "dtypes", *PATTERN_WORDS, EXPERTS, STACK)
        said = dict(said_in(entry.device.block, words, f"implementation {entry.name}", self._report))
        default = default_of(said["source"], self._report) if "source" in said else Default()
        return _Parsed(entry, said, default)

    def _methods(self, entry: Entry, parsed: Sequence[_Parsed]) -> Iterator[Method]:
        for word in dict.fromkeys(word for each in parsed for word in each.said if word in PATTERN_WORDS):
            reader = MethodReader(self._system, self._reading, entry.name)
            method = self._part(word, parsed, partial(reader.read, PATTERN_WORDS[word], word))
            yield from (method,) if method is not None else ()

    def _part(
        self, word: str, parsed: Sequence[_Parsed], read: Callable[[list[Layer]], tuple[T, DeviceNumbers]]
    ) -> T | None:
        """Read a block, None if there is none, and note the provenance of its numbers."""
        layers = [Layer(each.entry, each.said[word], each.default) for each in parsed if word in each.said]
        with self._report.attempt():
            if layers:
                part, numbers = read(layers)
                self._provenance += numbers.provenance(f"{parsed[-1].entry.name}.{word}")
                return part
        return None


def usual_systems() -> list[Entry]:
    """Return the system for which the implementations of a file without one are read: 8 H100 behind a switch."""
    return load(Source("<usual>", _USUAL), Report()).of_kind(Kind.SYSTEM)


@lru_cache(maxsize=64)
def shipped_implementations(system: System, folder: str = FOLDER) -> tuple[Implementation, ...]:
    """Return every implementation shipped in ``folder`` whose schedules engines and ranks of ``system`` can take."""
    found: list[Implementation] = []
    text = "\n".join(f'use "{name}"' for name in shipped_libraries() if name.startswith(folder))
    scope = load(Source("<shipped>", text), Report())
    for entry in scope.devices():
        report = Report()
        with report.trial():
            if entry.kind is Kind.IMPLEMENTATION:
                reading = Reading(Place(scope), ExpressionEvaluator(report, {}), report)
                found.append(ImplementationReader(system, reading).read(entry))
        unexpected = [each for each in report.diagnostics if each.code is not Code.MGS401]
        assert not unexpected, f"the shipped implementation {entry.name}: {unexpected[0].message}"
    return tuple(found)
