"""Schedules that name a template, and the engines that move bytes."""

from dataclasses import dataclass, field
from fractions import Fraction

from ...codes import Code
from ...collectives import ALGORITHM_BY_NAME
from ...ir import Choice, EngineChoice, EngineKind, EngineMode, PeerOrder, System
from ...planning.build import most_copy_sms
from ...planning.execution import MODES, VALUES, reject_mode, tactics_from, words_of
from ...templates import BY_NAME
from ...templates.bespoke import shortened
from ...templates.cuts import shortened_cuts
from ...text import syntax as ast
from ...text.diagnostics import Report, did_you_mean, listing
from ...text.units import NUMBER
from ...text.vocabulary import MAX_EXTENT, MAX_STREAMS, PART_ARGUMENTS, TACTICS, TEMPLATE_ARGUMENTS, Property
from ..values.device_numbers import FigureReader
from ..values.evaluate import ExpressionEvaluator, Place
from ..values.sentences import single

_COUNT = Property("a count of engines", NUMBER, Fraction(1), Fraction(1 << 20), whole=True)
_SIZES = {
    argument: Property(what, NUMBER, Fraction(0), Fraction(MAX_EXTENT), whole=True)
    for argument, what in (("parts", "rows of a part"), ("slices", "a slice"), ("columns", "a band of columns"))
}
_EXAMPLES = {
    "parts": "parts=[[512, 0], [0, 256], [0, 256]]",
    "slices": "slices=[[], [1024, 3072], []]",
    "columns": "columns=[[], [1024, 3072], []]",
}
_Lists = tuple[tuple[int, ...], ...]
_COUNTS = {
    "chunks": Property("chunks", NUMBER, Fraction(1), Fraction(1 << 20), whole=True),
    "lanes": Property("lanes", NUMBER, Fraction(1), Fraction(1 << 20), whole=True),
    "depth": Property("depth", NUMBER, Fraction(1), Fraction(1 << 20), whole=True),
    "streams": Property("streams", NUMBER, Fraction(1), Fraction(MAX_STREAMS), whole=True),
    "waves": Property("waves", NUMBER, Fraction(1), Fraction(1 << 20), whole=True),
    "sums": Property("sums", NUMBER, Fraction(1), Fraction(MAX_STREAMS), whole=True),
}


def known_words(argument: str) -> tuple[str, ...]:
    """The words that an argument of a template may be, the usual one first."""
    if argument == "algorithm":
        return tuple(ALGORITHM_BY_NAME)
    return words_of(PeerOrder) if argument == "order" else words_of(VALUES[argument])


@dataclass(slots=True)
class _Said:
    """What the arguments of a template say."""

    engine: EngineChoice | None = None
    counts: dict[str, int] = field(default_factory=dict)
    lists: dict[str, _Lists] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)


class ChoiceReader:
    """Reads templates and engines for one system."""

    def __init__(self, system: System, place: Place, evaluator: ExpressionEvaluator, report: Report) -> None:
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
        said = self._arguments(name.text, arguments)
        ranks, chosen = self._system.num_ranks, BY_NAME[name.text]
        chunks = chosen.default_pieces * ranks if chosen.cuts_shards else ranks
        return Choice(
            name.text,
            said.counts.get("chunks", chunks),
            said.engine or self.default_engine(),
            said.counts.get("streams", chosen.default_streams),
            tactics_from({word: value for word, value in said.words.items() if word in TACTICS}),
            said.words.get("algorithm", ""),
            order=PeerOrder(said.words.get("order", PeerOrder.ROTATED.value)),
            depth=said.counts.get("depth", 0),
            lanes=said.counts.get("lanes", 0),
            parts=shortened(said.lists.get("parts", ())),
            slices=shortened_cuts(said.lists.get("slices", ())),
            columns=shortened_cuts(said.lists.get("columns", ())),
            waves=said.counts.get("waves", 1),
            sums=said.counts.get("sums", 1),
        )

    def _arguments(self, template: str, arguments: tuple[ast.Argument, ...]) -> "_Said":
        said, seen, known = _Said(), set[str](), BY_NAME[template]
        for argument in arguments:
            given = self._argument(template, argument, seen)
            value = single(argument.values, self._report, in_call=True)
            if given == "streams" and not known.has_streams:
                raise self._report.fail(Code.MGS201, f"{template} runs on one stream", argument.span)
            parts, waves = given in (*PART_ARGUMENTS, "lanes"), given in ("waves", "sums")
            if (parts and not known.has_parts) or (waves and not known.has_waves):
                raise self._report.fail(Code.MGS201, f"{template} is not told its {given}", argument.span)
            if given == "engine":
                said.engine = self.engine(value)
            elif given in PART_ARGUMENTS:
                said.lists[given] = self._lists(given, value)
            elif given in _COUNTS:
                said.counts[given] = int(self._numbers.value(_COUNTS[given], (value,), self._place).amount)
            else:
                said.words[given] = self.word(given, value, known_words(given))
        return said

    def _lists(self, argument: str, value: ast.Expression) -> _Lists:
        """Read ``[[512, 0], [0, 256], [0, 256]]``."""
        if not isinstance(value, ast.Listed) or not value.items:
            raise self._report.fail(Code.MGS116, f"{argument} are a list of lists", value.span, _EXAMPLES[argument])
        return tuple([self._sizes(argument, item) for item in value.items])

    def _sizes(self, argument: str, value: ast.Expression) -> tuple[int, ...]:
        if not isinstance(value, ast.Listed) or (argument == "parts" and not value.items):
            what = "a part is a list of rows" if argument == "parts" else f"{argument} of a part are a list of sizes"
            raise self._report.fail(Code.MGS116, what, value.span, _EXAMPLES[argument])
        return tuple([int(self._numbers.value(_SIZES[argument], (item,), self._place).amount) for item in value.items])

    def word(self, argument: str, value: ast.Expression, known: tuple[str, ...]) -> str:
        """Read one of the words that ``argument`` may be."""
        if isinstance(value, ast.Name) and value.text in known:
            return value.text
        text = value.span.text[:40]
        hint = did_you_mean(text, known) or f"{argument} is {listing(known)}"
        raise self._report.fail(Code.MGS204, f"unknown {argument} '{text}'", value.span, hint)

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
        """Read ``dma``, ``dma(7)``, ``sm(8)`` or ``sm(8, shared)``."""
        match expression:
            case ast.Name(text="dma"):
                return self.default_engine()
            case ast.Call(
                function=ast.Name(text="dma" | "sm" as word),
                arguments=(ast.Argument(name=None) as argument, *more),
            ) if len(more) <= 1:
                count = int(self._numbers.value(_COUNT, argument.values, self._place).amount)
                self._check_engines(EngineKind(word), count, expression)
                return EngineChoice(EngineKind(word), count, self._mode(EngineKind(word), more))
            case ast.Name(text="sm"):
                raise self._report.fail(Code.MGS116, "sm says how many SMs copy", expression.span, "for instance sm(8)")
            case _:
                hint = "engines are dma, dma(7), sm(8), and with a mode dma(7, prelaunched) or sm(8, shared)"
                raise self._report.fail(
                    Code.MGS204, f"unknown engine '{expression.span.text[:40]}'", expression.span, hint
                )

    def _mode(self, kind: EngineKind, more: list[ast.Argument]) -> EngineMode:
        if not more:
            return EngineMode.OWN
        value = single(more[0].values, self._report, in_call=True)
        known = tuple(mode.value for modes in MODES.values() for mode in modes)
        if more[0].name is not None:
            raise self._report.fail(Code.MGS201, "the mode of an engine has no name", more[0].span, f"{kind.value}(8)")
        mode = EngineMode(self.word("mode", value, known))
        unfit = reject_mode(self._system.gpu, EngineChoice(kind, 1, mode))
        if unfit is not None:
            raise self._report.fail(unfit.code, unfit.message, value.span, unfit.hint)
        return mode

    def _check_engines(self, kind: EngineKind, count: int, expression: ast.Expression) -> None:
        gpu = self._system.gpu
        if kind is EngineKind.DMA and count > gpu.dma.engines:
            hint = f"dma({gpu.dma.engines}), or dma alone: one for each peer"
            message = f"{count} DMA engines asked, {gpu.name} has {gpu.dma.engines}"
            raise self._report.fail(Code.MGS401, message, expression.span, hint)
        if kind is EngineKind.SM and count > most_copy_sms(gpu):
            most = most_copy_sms(gpu)
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
