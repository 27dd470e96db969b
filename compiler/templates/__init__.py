"""Schedule templates: each writes the chunk plan of one family. A new one is a file, a line here, a row in the docs."""

from collections.abc import Mapping
from types import MappingProxyType

from . import bespoke, forest, hetero, pipelined, serial
from .base import Cut, Template, TemplateInput
from .collective import LONE_TEMPLATES

ALL_TEMPLATES: tuple[Template, ...] = (
    serial.SERIAL,
    hetero.SHARDS,
    serial.ROWS,
    hetero.FUSED,
    hetero.UNFUSED,
    serial.COLUMNS,
    serial.BULK,
    pipelined.TEMPLATE,
    bespoke.TEMPLATE,
    *LONE_TEMPLATES,
    forest.TEMPLATE,
)

# Whole kernels and whole collectives one after the other: what every other schedule has to beat.
BASELINE: Template = serial.SERIAL

# Those that a search goes through; the order is that of the answers.
TEMPLATES: tuple[Template, ...] = tuple(template for template in ALL_TEMPLATES if template.explored)

BY_NAME: Mapping[str, Template] = MappingProxyType({template.name: template for template in ALL_TEMPLATES})

__all__ = ["ALL_TEMPLATES", "BASELINE", "BY_NAME", "TEMPLATES", "Cut", "Template", "TemplateInput"]
