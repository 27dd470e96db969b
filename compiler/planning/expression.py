"""The canonical text of a template choice, which is the schedule's identity in tables, JSON and on the command line."""

from ..ir import Choice
from ..templates import BY_NAME
from . import knobs
from .execution import non_default_options
from .knobs import Knob
from .knobs.base import SizeValues, WordValues
from .knobs.structure import CHUNKS, STREAMS, TEMPLATE


def expression_of(choice: Choice) -> str:
    """``uniform_fused_1d(chunks=64, engine=dma(7))``; parameters a template does not have are left out.

    So is every other parameter at its usual value, but for the engine, and streams of a template that usually has
    several.

    >>> from magus.compiler.ir.schedule import EngineChoice, EngineKind
    >>> expression_of(Choice("serial", 8, EngineChoice(EngineKind.DMA, 7)))
    'serial(engine=dma(7))'
    """
    options = dict(non_default_options(choice.tactics))
    said = {knob.word: options.get(knob.word) if knob.option else _text(knob, choice) for knob in knobs.KNOBS}
    arguments = (f"{word}={text}" for word, text in said.items() if text is not None)
    return f"{choice.template}({', '.join(arguments)})"


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
