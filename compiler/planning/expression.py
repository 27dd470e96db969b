"""Choices and execution options as words of the language, and back.

The canonical text of a choice is the identity of the schedule in tables, JSON and on the command line.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from ..ir import Choice, ExecutionOptions
from ..templates import BY_NAME
from . import knobs
from .knobs import KNOBS, Knob
from .knobs.base import SizeValues, WordValues
from .knobs.execution import KERNEL, USUAL_WAIT, WAIT
from .knobs.pieces import PARTS
from .knobs.structure import CHUNKS, STREAMS, TEMPLATE

OPTIONS: Mapping[str, Knob] = {knob.word: knob for knob in KNOBS if knob.option}


def options_from(given: Mapping[str, str]) -> ExecutionOptions:
    """Execution options from words; what is not said is usual, and a persistent kernel usually polls."""
    return options_of({OPTIONS[word]: OPTIONS[word].value_of(text) for word, text in given.items()})


def options_of(given: Mapping[Knob, Any]) -> ExecutionOptions:
    """The same from values."""
    wait = USUAL_WAIT[given.get(KERNEL, KERNEL.usual)]
    return ExecutionOptions(**{knob.field: value for knob, value in {WAIT: wait, **given}.items()})


def values_of(options: ExecutionOptions) -> dict[str, Enum]:
    """The value of each option, by the word of the option."""
    return {word: getattr(options, knob.field) for word, knob in OPTIONS.items()}


def non_default_options(options: ExecutionOptions) -> tuple[tuple[str, str], ...]:
    """(word, value) of everything that is not usual, in the order of the canonical text."""
    usual = {word: knob.usual for word, knob in OPTIONS.items()} | {WAIT.word: USUAL_WAIT[options.kernel]}
    return tuple((word, str(value.value)) for word, value in values_of(options).items() if value is not usual[word])


def expression_of(choice: Choice) -> str:
    """``uniform_fused_1d(chunks=64, engine=dma(7))``; parameters a template does not have are left out.

    So is every other parameter at its usual value, but for the engine, and streams of a template that usually has
    several.

    >>> from magus.compiler.ir.schedules.schedule import EngineChoice, EngineKind
    >>> expression_of(Choice("serial", 8, EngineChoice(EngineKind.DMA, 7)))
    'serial(engine=dma(7))'
    """
    arguments = (f"{knob.word}={text}" for knob, text in _arguments(choice))
    return f"{choice.template}({', '.join(arguments)})"


def short_text_of(choice: Choice) -> str:
    """``bespoke (3 parts, dma(7), 2 streams)``: the arguments in words, of lists of sizes only how many there are.

    >>> from magus.compiler.ir.schedules.schedule import EngineChoice, EngineKind
    >>> engine = EngineChoice(EngineKind.DMA, 3)
    >>> short_text_of(Choice("bespoke", 4, engine, 2, parts=((64, 0), (0, 64)), slices=((), (128, 256))))
    'bespoke (2 parts, 1 cut along k, dma(3), 2 streams)'
    """
    words = (_short(knob, text, choice) for knob, text in _arguments(choice))
    return f"{choice.template} ({', '.join(words)})"


def _short(knob: Knob, text: str, choice: Choice) -> str:
    if isinstance(knob.values, SizeValues):
        sizes = knob.of(choice)
        return (
            _counted(len(sizes), "parts")
            if knob is PARTS
            else f"{sum(map(bool, sizes))} cut {_CUT.get(knob.word, f'by {knob.word}')}"
        )
    if knob.word in _COUNTED:
        return _counted(int(text), knob.word)
    return text if knob.word == "engine" else f"{knob.word} {text}"


def _counted(number: int, things: str) -> str:
    return f"{number} {things if number != 1 else things.removesuffix('s')}"


_CUT = {"slices": "along k", "columns": "by columns"}
_COUNTED = ("chunks", "streams", "lanes")


def _arguments(choice: Choice) -> Iterator[tuple[Knob, str]]:
    """Yield what is said of a choice, knob by knob."""
    options = dict(non_default_options(choice.tactics))
    for knob in knobs.KNOBS:
        text = options.get(knob.word) if knob.option else _text(knob, choice)
        if text is not None:
            yield knob, text


def _text(knob: Knob, choice: Choice) -> str | None:
    """The value of ``knob`` as an argument, None if it is left out."""
    value, template = knob.of(choice), BY_NAME[choice.template]
    if knob in (CHUNKS, STREAMS):
        said = knob.has(template) and (knob is CHUNKS or max(value, template.default_streams) > 1)
        return str(value) if said else None
    if knob is TEMPLATE or value == knob.usual:
        return None
    if isinstance(knob.values, SizeValues):
        return str([list(sizes) for sizes in value])
    return str(value.value) if isinstance(knob.values, WordValues) else str(value)
