"""Schedule templates: each writes the chunk plan of one family. A new one is a file, a line here, a test."""

from collections.abc import Mapping
from types import MappingProxyType

from . import hetero_fused_1d, hetero_unfused_1d, serial, shard_p2p, uniform_fused_1d, uniform_fused_2d
from .base import Cut, Template

TEMPLATES: tuple[Template, ...] = (
    serial.TEMPLATE,
    shard_p2p.TEMPLATE,
    uniform_fused_1d.TEMPLATE,
    hetero_fused_1d.TEMPLATE,
    hetero_unfused_1d.TEMPLATE,
    uniform_fused_2d.TEMPLATE,
)

BY_NAME: Mapping[str, Template] = MappingProxyType({template.name: template for template in TEMPLATES})

__all__ = ["BY_NAME", "TEMPLATES", "Cut", "Template"]
