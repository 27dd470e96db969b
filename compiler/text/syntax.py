"""The syntax tree: the text as written, before any name is looked up.

Spans are not compared, so that the trees of two texts with the same words are equal. Chains of operators are flat,
which keeps the depth of a tree bounded by the nesting of its brackets. A node that becomes a thing of the same name
ends in ``Node``: a ``SystemNode`` is resolved to a ``System``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields

from .diagnostics import Source, Span

_NOWHERE = Span(Source("<none>", ""), 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A part of a text."""

    span: Span = field(default=_NOWHERE, compare=False, repr=False)


# Expressions.


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A word."""

    text: str


@dataclass(frozen=True, slots=True)
class NumberNode(Node):
    """A number without unit, as it is spelled."""

    text: str


@dataclass(frozen=True, slots=True)
class Measure(Node):
    """A number with its unit, for instance ``64 GB/s``."""

    number: str
    unit: str


@dataclass(frozen=True, slots=True)
class Text(Node):
    """A text, without its quotes."""

    value: str


@dataclass(frozen=True, slots=True)
class Negate(Node):
    """``-operand``."""

    operand: "Expression"


@dataclass(frozen=True, slots=True)
class ChainNode(Node):
    """``first (operator operand)*`` with operators of one rank: ``+ -`` or ``* /``."""

    first: "Expression"
    rest: tuple[tuple[str, "Expression"], ...]


@dataclass(frozen=True, slots=True)
class Parens(Node):
    """``(a)``; more than one item is an error that is reported later."""

    items: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Listed(Node):
    """``[a, b]``."""

    items: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Argument(Node):
    """``value`` or ``name=value`` of a call; more than one value is an error that is reported later."""

    name: str | None
    values: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Call(Node):
    """``function(arguments)``."""

    function: "Expression"
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Slice(Node):
    """``start:stop``, the end not included."""

    start: "Expression"
    stop: "Expression"


@dataclass(frozen=True, slots=True)
class Index(Node):
    """``base[subscripts]``."""

    base: "Expression"
    subscripts: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Member(Node):
    """``base.name``."""

    base: "Expression"
    name: str


@dataclass(frozen=True, slots=True)
class Range(Node):
    """``low..high``, both ends included."""

    low: "Expression"
    high: "Expression"


@dataclass(frozen=True, slots=True)
class Spread(Node):
    """``value +- tolerance``."""

    value: "Expression"
    tolerance: "Expression"


@dataclass(frozen=True, slots=True)
class Compare(Node):
    """``left operator right``; the operator may be ``in``."""

    left: "Expression"
    operator: str
    right: "Expression"


Expression = (
    Name
    | NumberNode
    | Measure
    | Text
    | Negate
    | ChainNode
    | Parens
    | Listed
    | Call
    | Slice
    | Index
    | Member
    | Range
    | Spread
    | Compare
)


# Sentences and statements.


@dataclass(frozen=True, slots=True)
class Note(Node):
    """Origin and source of a number: ``@measured(n=50) "nccl-tests"``."""

    origin: str
    arguments: tuple[Argument, ...] = ()
    source: str | None = None


@dataclass(frozen=True, slots=True)
class GroupNode(Node):
    """Words and values side by side."""

    parts: tuple[Expression, ...]
    note: Note | None = None


Phrase = tuple[GroupNode, ...]


@dataclass(frozen=True, slots=True)
class Define(Node):
    """``name = phrase``: the name is new."""

    name: str
    phrase: Phrase


@dataclass(frozen=True, slots=True)
class Say(Node):
    """``word ...`` with a block or without: the word belongs to the language."""

    phrase: Phrase
    block: "BlockNode | None" = None


@dataclass(frozen=True, slots=True)
class BlockNode(Node):
    """``{ statements }``."""

    statements: tuple[Define | Say, ...]


# Declarations.


@dataclass(frozen=True, slots=True)
class Path(Node):
    """``name`` or ``library.name``."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.names)


@dataclass(frozen=True, slots=True)
class Version(Node):
    """``mgs 1``."""

    number: str


@dataclass(frozen=True, slots=True)
class Use(Node):
    """``use "vendor/name" as alias``."""

    library: str
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Include(Node):
    """``include "path"``."""

    path: str


@dataclass(frozen=True, slots=True)
class Let(Node):
    """``let name = value``."""

    name: str
    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class ParamNode(Node):
    """``param name = default in domain``."""

    name: str
    values: tuple[Expression, ...]
    domain: Phrase | None = None


@dataclass(frozen=True, slots=True)
class DeviceNode(Node):
    """``gpu``, ``link``, ``switch``, ``implementation`` or ``kernel``; ``kind`` is the word."""

    kind: str
    name: str
    parent: Path | None
    block: BlockNode


@dataclass(frozen=True, slots=True)
class SystemNode(Node):
    """``system name { }``."""

    name: str
    block: BlockNode


@dataclass(frozen=True, slots=True)
class WorkloadNode(Node):
    """``workload name on system { }``."""

    name: str
    system: Path
    block: BlockNode


@dataclass(frozen=True, slots=True)
class TemplateNode(Node):
    """``schedule name for workload = template(...)``."""

    name: str
    workload: Path
    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class PlanNode(Node):
    """``schedule name for workload { plan ... }``."""

    name: str
    workload: Path
    block: BlockNode


@dataclass(frozen=True, slots=True)
class ExploreNode(Node):
    """``explore workload { }``."""

    workload: Path
    block: BlockNode


@dataclass(frozen=True, slots=True)
class Binding(Node):
    """``name = value`` after ``with``."""

    name: str
    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Expect(Node):
    """``expect workload with name = value { }``."""

    workload: Path | None
    bindings: tuple[Binding, ...]
    block: BlockNode


Declaration = (
    Use
    | Include
    | Let
    | ParamNode
    | DeviceNode
    | SystemNode
    | WorkloadNode
    | TemplateNode
    | PlanNode
    | ExploreNode
    | Expect
)


@dataclass(frozen=True, slots=True)
class Comment(Node):
    """``# text``; ``own_line`` tells whether it stands alone on its line."""

    text: str
    own_line: bool


@dataclass(frozen=True, slots=True)
class File(Node):
    """One text; comments stand beside the tree and are placed by their spans."""

    version: Version | None
    declarations: tuple[Declaration, ...]
    comments: tuple[Comment, ...] = field(default=(), compare=False)
    num_tokens: int = field(default=0, compare=False)


def nodes_in(tree: object) -> Iterator[Node]:
    """Yield all nodes of a part of a tree, each before those in it."""
    if isinstance(tree, tuple):
        for each in tree:
            yield from nodes_in(each)
    elif isinstance(tree, Node):
        yield tree
        for part in fields(tree):
            if part.name != "span":
                yield from nodes_in(getattr(tree, part.name))
