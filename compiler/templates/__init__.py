"""Schedule templates: each writes the chunk plan of one family. A new one is a file, a line here, a row in the docs."""

from collections.abc import Mapping
from types import MappingProxyType

from . import (
    bespoke,
    bulk,
    forest,
    hetero_fused_1d,
    hetero_unfused_1d,
    pipelined,
    serial,
    shard_p2p,
    uniform_fused_1d,
    uniform_fused_2d,
)
from .base import Cut, Template, TemplateInput
from .collective import LONE_TEMPLATES

ALL_TEMPLATES: tuple[Template, ...] = (
    serial.TEMPLATE,
    shard_p2p.TEMPLATE,
    uniform_fused_1d.TEMPLATE,
    hetero_fused_1d.TEMPLATE,
    hetero_unfused_1d.TEMPLATE,
    uniform_fused_2d.TEMPLATE,
    bulk.TEMPLATE,
    pipelined.TEMPLATE,
    bespoke.TEMPLATE,
    *LONE_TEMPLATES,
    forest.TEMPLATE,
)

# Whole kernels and whole collectives one after the other: what every other schedule has to beat.
BASELINE: Template = serial.TEMPLATE

# Those that a search goes through; the order is that of the answers.
TEMPLATES: tuple[Template, ...] = tuple(template for template in ALL_TEMPLATES if template.explored)

BY_NAME: Mapping[str, Template] = MappingProxyType({template.name: template for template in ALL_TEMPLATES})

__all__ = ["ALL_TEMPLATES", "BASELINE", "BY_NAME", "TEMPLATES", "Cut", "Template", "TemplateInput"]
