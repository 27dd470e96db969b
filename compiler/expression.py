"""The canonical text of a template choice, which is the schedule's identity in tables, JSON and on the command line."""

from .schedule import Choice

WHOLE_SHARD_TEMPLATES = ("serial", "shard_p2p")
STREAM_TEMPLATES = ("hetero_unfused_1d",)


def expression_of(choice: Choice) -> str:
    """``uniform_fused_1d(chunks=64, engine=dma(7))``; parameters a template does not have are left out.

    >>> expression_of(Choice("serial", 8, EngineChoice(EngineKind.DMA, 7)))
    'serial(engine=dma(7))'
    """
    parts = [] if choice.template in WHOLE_SHARD_TEMPLATES else [f"chunks={choice.chunks}"]
    parts.append(f"engine={choice.engine}")
    if choice.template in STREAM_TEMPLATES:
        parts.append(f"streams={choice.streams}")
    return f"{choice.template}({', '.join(parts)})"
