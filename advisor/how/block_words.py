"""Blocks, and what must have landed of them, in words."""

from collections.abc import Sequence
from itertools import groupby

from .expressions import Expression
from .facts import Block, Landed, Role
from .naming import EntryNames

PRONOUNS = {"it": "its", "them": "their"}


def mentioned(text: str, said: set[str]) -> str:
    """Return ``text``, or a pronoun where the sentence has said it before."""
    if text not in said:
        said.add(text)
        return text
    return "it" if text.startswith("block ") else "them"


def blocks_text(blocks: Sequence[Block[Expression]], names: EntryNames) -> str:
    """Return blocks; those of which the same rows are meant together."""
    texts: list[str] = []
    for (role, rows, cols), same in groupby(blocks, lambda block: (block.role, block.rows, block.cols)):
        owners = [block.owner for block in same]
        cut = [*([names.rows(rows)] if rows else []), *([f"columns {names.span(cols)}"] if cols else [])]
        texts.append(_owned(role, ", ".join(cut), owners, names))
    return " and ".join(texts)


def _owned(role: Role, cut: str, owners: Sequence[tuple[Expression, ...]], names: EntryNames) -> str:
    if role is Role.ALL:
        return cut or "all rows"
    several = len(owners) > 1
    everyone = several and len(set(owners)) == names.frame.num_ranks
    if role is Role.OF:
        whose = "every block" if everyone else f"block{'s' if several else ''} {names.ranks(owners)}"
        return f"{cut} of {whose}" if cut else whose
    whose = "every rank" if everyone else f"rank{'s' if several else ''} {names.ranks(owners)}"
    return f"{cut or 'all rows'} {'for' if role is Role.TO else 'from'} {whose}"


def landed_texts(landed: Sequence[Landed[Expression]], names: EntryNames, said: set[str]) -> list[str]:
    """Return what must have landed here; what comes alike together."""
    texts: list[str] = []
    for _, same in groupby(landed, lambda each: (each.adds, each.block.rows, each.block.cols)):
        items = list(same)
        blocks = list(dict.fromkeys(each.block for each in items))
        sources = list(dict.fromkeys(each.source for each in items))
        several = len(blocks) > 1 or bool(blocks[0].rows or blocks[0].cols) or blocks[0].role is not Role.OF
        verb = f"{'have' if several else 'has'} {'been added' if items[0].adds else 'landed'}"
        whose = "" if all(each.source == each.block.owner for each in items) else f" from {_many(sources, names)}"
        each = ", in this order" if whose and len(blocks) > 1 and len(sources) > 1 else ""
        texts.append(f"{mentioned(blocks_text(blocks, names), said)} {verb}{whose}{each}")
    return texts


def _many(ranks: Sequence[tuple[Expression, ...]], names: EntryNames) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {names.ranks(ranks)}"
