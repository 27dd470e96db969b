"""Schedules that name a template, and the engines that move bytes."""

from fractions import Fraction

from . import syntax as ast
from .codes import Code
from .diagnostics import Report, did_you_mean, listing
from .evaluate import Evaluator, Place
from .figures import FigureReader
from .phrases import single
from .plan import MAX_COPY_SHARE
from .scenario import System
from .schedule import Choice, EngineChoice, EngineKind
from .tables import (
    CHUNKS_PER_RANK,
    MAX_STREAMS,
    TEMPLATE_ARGUMENTS,
    Property,
)
from .templates import BY_NAME
from .units import NUMBER

_COUNT = Property("a count of engines", NUMBER, Fraction(1), Fraction(1 << 20), whole=True)
_COUNTS = {
    "chunks": Property("chunks", NUMBER, Fraction(1), Fraction(1 << 20), whole=True),
    "streams": Property("streams", NUMBER, Fraction(1), Fraction(MAX_STREAMS), whole=True),
}


class ChoiceReader:
    """Reads templates and engines for one system."""

    def __init__(self, system: System, place: Place, evaluator: Evaluator, report: Report) -> None:
        self._system, self._place, self._report = system, place, report
        self._numbers = FigureReader(report, evaluator)

    def choice(self, template: ast.Template) -> Choice:
        """Read ``uniform_fused_1d(chunks=64, engine=dma(7))`` and fill in what is not said."""
        expression = single(template.values, self._report)
        arguments: tuple[ast.Argument, ...] = ()
        match expression:
            case ast.Name():
                name = expression
            case ast.Call(function=ast.Name() as name):
                arguments = expression.arguments
            case _:
                hint = f"for instance serial(); templates are {listing(BY_NAME)}"
                raise self._report.fail(Code.MGS116, "a template is expected here", expression.span, hint)
        self.check_template(name)
        counts: dict[str, int] = {}
        engine: EngineChoice | None = None
        seen: set[str] = set()
        for argument in arguments:
            given = self._argument(name.text, argument, seen)
            if given == "streams" and not BY_NAME[name.text].has_streams:
                raise self._report.fail(Code.MGS201, f"{name.text} runs on one stream", argument.span)
            if given == "engine":
                engine = self.engine(single(argument.values, self._report, in_call=True))
            else:
                counts[given] = self._count(given, argument)
        ranks = self._system.num_ranks
        chosen = BY_NAME[name.text]
        chunks = CHUNKS_PER_RANK * ranks if chosen.cuts_shards else ranks
        streams = counts.get("streams", chosen.default_streams)
        return Choice(name.text, counts.get("chunks", chunks), engine or self.default_engine(), streams)

    def check_template(self, name: ast.Name) -> str:
        """Return the name of a template that exists."""
        if name.text not in BY_NAME:
            hint = did_you_mean(name.text, BY_NAME) or f"templates are {listing(BY_NAME)}"
            raise self._report.fail(Code.MGS505, f"unknown template '{name.text[:64]}'", name.span, hint)
        return name.text

    def default_engine(self) -> EngineChoice:
        """One copy engine per peer, as far as the GPU has that many."""
        return EngineChoice(EngineKind.DMA, max(1, min(self._system.gpu.dma.engines, self._system.num_ranks - 1)))

    def engine(self, expression: ast.Expression) -> EngineChoice:
        """Read ``dma``, ``dma(7)`` or ``sm(8)``."""
        match expression:
            case ast.Name(text="dma"):
                return self.default_engine()
            case ast.Call(
                function=ast.Name(text="dma" | "sm" as word), arguments=(ast.Argument(name=None) as argument,)
            ):
                count = int(self._numbers.value(_COUNT, argument.values, self._place).amount)
                self._check_engines(EngineKind(word), count, expression)
                return EngineChoice(EngineKind(word), count)
            case ast.Name(text="sm"):
                raise self._report.fail(Code.MGS116, "sm says how many SMs copy", expression.span, "for instance sm(8)")
            case _:
                hint = "engines are dma, dma(7), sm(8)"
                raise self._report.fail(
                    Code.MGS204, f"unknown engine '{expression.span.text[:40]}'", expression.span, hint
                )

    def _check_engines(self, kind: EngineKind, count: int, expression: ast.Expression) -> None:
        gpu = self._system.gpu
        if kind is EngineKind.DMA and count > gpu.dma.engines:
            hint = f"dma({gpu.dma.engines}), or dma alone: one for each peer"
            message = f"{count} DMA engines asked, {gpu.name} has {gpu.dma.engines}"
            raise self._report.fail(Code.MGS401, message, expression.span, hint)
        if kind is EngineKind.SM and count > gpu.sms // MAX_COPY_SHARE:
            most = gpu.sms // MAX_COPY_SHARE
            message = f"{count} SMs asked for copies, at most {most} of the {gpu.sms} of {gpu.name} may copy"
            raise self._report.fail(Code.MGS401, message, expression.span, "for instance sm(16)")

    def _argument(self, template: str, argument: ast.Argument, seen: set[str]) -> str:
        name = argument.name
        if name is None:
            hint = f"for instance {template}(chunks=64, engine=dma)"
            raise self._report.fail(Code.MGS116, "arguments of a template are named", argument.span, hint)
        if name not in TEMPLATE_ARGUMENTS:
            hint = did_you_mean(name, TEMPLATE_ARGUMENTS) or f"arguments are {listing(TEMPLATE_ARGUMENTS)}"
            raise self._report.fail(Code.MGS201, f"a template has no argument '{name[:64]}'", argument.span, hint)
        if name in seen:
            raise self._report.fail(Code.MGS206, f"{name} is said twice", argument.span)
        seen.add(name)
        return name

    def _count(self, name: str, argument: ast.Argument) -> int:
        value = single(argument.values, self._report, in_call=True)
        return int(self._numbers.value(_COUNTS[name], (value,), self._place).amount)
