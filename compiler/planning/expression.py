"""The canonical text of a template choice, which is the schedule's identity in tables, JSON and on the command line."""

from ..ir import Choice, PeerOrder
from ..templates import BY_NAME
from .execution import said


def expression_of(choice: Choice) -> str:
    """``uniform_fused_1d(chunks=64, engine=dma(7))``; parameters a template does not have are left out.

    So are an algorithm, tactics, waves, sums, an order and a depth that are the usual ones.

    >>> from magus.compiler.ir.schedule import EngineChoice, EngineKind
    >>> expression_of(Choice("serial", 8, EngineChoice(EngineKind.DMA, 7)))
    'serial(engine=dma(7))'
    """
    template = BY_NAME[choice.template]
    parts = [f"chunks={choice.chunks}"] if template.cuts_shards else []
    for word, lists in (("parts", choice.parts), ("slices", choice.slices), ("columns", choice.columns)):
        if lists:
            parts.append(f"{word}=[{', '.join(map(_listed, lists))}]")
    parts.append(f"engine={choice.engine}")
    if template.has_streams and (choice.streams > 1 or template.default_streams > 1):
        parts.append(f"streams={choice.streams}")
    if choice.algorithm:
        parts.append(f"algorithm={choice.algorithm}")
    if choice.waves > 1:
        parts.append(f"waves={choice.waves}")
    if choice.sums > 1:
        parts.append(f"sums={choice.sums}")
    if choice.lanes:
        parts.append(f"lanes={choice.lanes}")
    parts += [f"{word}={value}" for word, value in said(choice.tactics)]
    if choice.order is not PeerOrder.ROTATED:
        parts.append(f"order={choice.order.value}")
    if choice.depth:
        parts.append(f"depth={choice.depth}")
    return f"{choice.template}({', '.join(parts)})"


def _listed(sizes: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, sizes))}]"
