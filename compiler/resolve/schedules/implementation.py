"""Implementations: ``implementation flux { gpus H100; ag_gemm { schedule ...; path copy_engine; rate 100 %; ... } }``.

An implementation is read for one system, whose ranks and engines its schedules take.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...codes import Code
from ...ir import DType, Implementation, Method, Pattern, Provenance, Rejection, System, Workload
from ...text import syntax as ast
from ...text.diagnostics import Report, did_you_mean, listing
from ...text.names import Entry, Kind
from ..values.device_numbers import Default, FigureReader
from ..values.evaluate import ExpressionEvaluator
from ..values.sentences import Words, known_head
from .method import Layer, MethodReader

PATTERN_WORDS: Mapping[str, Pattern] = {
    pattern.value.replace("+", "_").lower(): pattern for pattern in Pattern if pattern.overlaps
}


def reject_implementation(implementation: Implementation, workload: Workload) -> Rejection | None:
    """Why ``implementation`` cannot be predicted for ``workload``, None if it can."""
    name, method = implementation.name, implementation.method(workload.pattern)
    if method is None:
        does = ", ".join(each.pattern.value for each in implementation.methods)
        return Rejection(Code.MGS530, f"{name} does not do {workload.pattern.value}", f"it does {does}")
    if method.missing:
        missing = ", ".join(method.missing)
        return Rejection(Code.MGS209, f"{name} cannot be predicted: {missing} not known", "say it, with its source")
    dtype = workload.gemm.dtype if workload.gemm is not None else None
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

    def __init__(self, system: System, evaluator: ExpressionEvaluator, report: Report) -> None:
        self._system, self._evaluator, self._report = system, evaluator, report
        self._figures = FigureReader(report, evaluator)

    def read(self, entry: Entry) -> Implementation:
        """Return the implementation that ``entry`` declares; report what is wrong with it."""
        failures_before = self._report.num_failures
        parsed = [self._parsed(each) for each in self._with_parents(entry)]
        said = {word: statement for each in parsed for word, statement in each.said.items()}
        methods, provenance = self._methods(entry, parsed)
        gpus = self._names(said, "gpus", ())
        dtypes = tuple(DType(name) for name in self._names(said, "dtypes", tuple(each.value for each in DType)))
        dtypes = dtypes or tuple(DType)
        if not methods and self._report.num_failures == failures_before:
            hint = f"what it does is {listing(PATTERN_WORDS)}: ag_gemm {{ ... }}"
            message = f"implementation {entry.name} does nothing"
            self._report.error(Code.MGS209, message, entry.declaration.span, hint)
        if self._report.num_failures > failures_before or not methods:
            raise self._report.stop()
        return Implementation(entry.name, gpus, dtypes, methods, provenance)

    def _with_parents(self, entry: Entry) -> tuple[Entry, ...]:
        """Return the implementations that ``entry`` extends, the most distant first, and ``entry``."""
        line = [entry]
        while isinstance(device := line[0].declaration, ast.Device) and device.parent is not None:
            parent = line[0].scope.find(device.parent, Kind.IMPLEMENTATION, self._report)
            if parent in line:
                raise self._report.fail(Code.MGS205, f"'{parent.name}' extends itself", device.parent.span)
            line.insert(0, parent)
        return tuple(line)

    def _parsed(self, entry: Entry) -> _Parsed:
        """Return the statements of one implementation; report those that are unknown or said twice."""
        declaration = entry.declaration
        assert isinstance(declaration, ast.Device)
        said: dict[str, ast.Say] = {}
        for statement in declaration.block.statements:
            with self._report.attempt():
                words = ("source", "gpus", "dtypes", *PATTERN_WORDS)
                word = known_head(statement, words, f"implementation {entry.name}", self._report)
                assert isinstance(statement, ast.Say)
                if word in said:
                    raise self._report.fail(Code.MGS206, f"{word} is said twice", statement.span)
                said[word] = statement
        default = self._figures.default(said["source"], Default()) if "source" in said else Default()
        return _Parsed(entry, said, default)

    def _methods(self, entry: Entry, parsed: Sequence[_Parsed]) -> tuple[tuple[Method, ...], tuple[Provenance, ...]]:
        methods: list[Method] = []
        provenance: list[Provenance] = []
        for word in dict.fromkeys(word for each in parsed for word in each.said if word in PATTERN_WORDS):
            with self._report.attempt():
                layers = [Layer(each.entry, each.said[word], each.default) for each in parsed if word in each.said]
                reader = MethodReader(self._system, self._evaluator, self._report)
                method, numbers = reader.read(PATTERN_WORDS[word], word, layers)
                methods.append(method)
                provenance += numbers.provenance(f"{entry.name}.{word}")
        return tuple(methods), tuple(provenance)

    def _names(self, said: Mapping[str, ast.Say], word: str, known: tuple[str, ...]) -> tuple[str, ...]:
        """Read ``gpus H100, H800``; one of ``known`` each, if there are such."""
        if word not in said:
            return ()
        words = Words(said[word].phrase, self._report)
        words.take(word)
        names = []
        for each in words.take_list(f"one of {word}"):
            if not isinstance(each, ast.Name) or (known and each.text not in known):
                hint = did_you_mean(each.span.text[:40], known) or f"{word} {', '.join(known[:2]) or 'H100, H800'}"
                raise self._report.fail(Code.MGS204, f"unknown {word[:-1]} '{each.span.text[:40]}'", each.span, hint)
            names.append(each.text)
        words.end()
        return tuple(dict.fromkeys(names))
