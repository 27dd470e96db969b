"""Names that a file declares, or takes from libraries and included files; and the libraries that ship."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.resources import files
from itertools import dropwhile, takewhile
from pathlib import Path

from ..codes import Code
from . import syntax as ast
from .diagnostics import Report, Severity, Span, closest, did_you_mean

LIBRARY = files((__package__ or "").rpartition(".")[0]).joinpath("library")
"""The folder of what ships: a folder for each vendor, in it a file for each library."""
_LIBRARY_NAME = re.compile(r"[a-z0-9_]+/[a-z0-9_]+")


@cache
def shipped_libraries() -> tuple[str, ...]:
    """Return the names of all shipped libraries, as ``use`` takes them."""
    vendors = [vendor for vendor in LIBRARY.iterdir() if vendor.is_dir()]
    names = [f"{vendor.name}/{entry.name.removesuffix('.mgs')}" for vendor in vendors for entry in vendor.iterdir()]
    return tuple(sorted(name for name in names if _LIBRARY_NAME.fullmatch(name)))


STACKS_FOLDER = "stacks/"
"""Where shipped libraries of stacks are; each declares one of its own name."""


def shipped_stacks() -> tuple[str, ...]:
    """Return the names of all shipped stacks, as schedules of steps take them."""
    return tuple(name.removeprefix(STACKS_FOLDER) for name in shipped_libraries() if name.startswith(STACKS_FOLDER))


@cache
def library_about(name: str) -> str:
    """Return the first sentence of the comment above the first declaration of a shipped library, empty without one."""
    lines = dropwhile(lambda line: not line.startswith("# "), library_text(name).splitlines())
    comment = " ".join(line.removeprefix("# ") for line in takewhile(lambda line: line.startswith("# "), lines))
    return comment.partition(". ")[0].removesuffix(".")


def library_text(name: str) -> str:
    """Return the text of a shipped library."""
    vendor, short = name.split("/")
    return LIBRARY.joinpath(vendor, f"{short}.mgs").read_text(encoding="utf-8")


@cache
def shipped_devices(kind: str) -> dict[str, tuple[str, ...]]:
    """Return the shipped libraries that declare each name of a kind, such as each ``link``."""
    declared = re.compile(rf"^{kind} (\w+)", re.MULTILINE)
    found: dict[str, tuple[str, ...]] = {}
    for library in shipped_libraries():
        for name in declared.findall(library_text(library)):
            found[name] = (*found.get(name, ()), library)
    return found


class Kind(Enum):
    """The kind of thing that a name stands for; the value is its word in messages."""

    LET = "value"
    PARAM = "parameter"
    GPU = "gpu"
    LINK = "link"
    SWITCH = "switch"
    IMPLEMENTATION = "implementation"
    KERNEL = "kernel"
    SYSTEM = "system"
    WORKLOAD = "workload"
    SCHEDULE = "schedule"
    LIBRARY = "library"

    @property
    def one(self) -> str:
        """The word with its article."""
        return f"{'an' if self is Kind.IMPLEMENTATION else 'a'} {self.value}"


Named = ast.Let | ast.ParamNode | ast.DeviceNode | ast.SystemNode | ast.WorkloadNode | ast.TemplateNode | ast.PlanNode
RESERVED = ("best", "serial", "bound", "base")
_VALUES = (Kind.LET, Kind.PARAM)
_DEVICES = (Kind.GPU, Kind.LINK, Kind.SWITCH, Kind.IMPLEMENTATION)


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A declared name, and the scope in which names in its declaration are looked up; compared by identity."""

    name: str
    kind: Kind
    declaration: Named | ast.Use
    scope: "Scope"

    @property
    def workload(self) -> ast.WorkloadNode:
        """The declaration of a workload."""
        assert isinstance(self.declaration, ast.WorkloadNode)
        return self.declaration

    @property
    def schedule(self) -> ast.TemplateNode | ast.PlanNode:
        """The declaration of a schedule."""
        assert isinstance(self.declaration, ast.TemplateNode | ast.PlanNode)
        return self.declaration

    @property
    def device(self) -> ast.DeviceNode:
        """The declaration of a gpu, link, switch, implementation or kernel."""
        assert isinstance(self.declaration, ast.DeviceNode)
        return self.declaration


class Scope:
    """One namespace: a file with everything it includes, or a library."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._libraries: dict[str, Scope] = {}
        self._shared: dict[str, str] = {}
        self.questions: list[ast.ExploreNode | ast.Expect] = []
        self.declared_twice: set[str] = set()  # names that are declared more than once
        self._derived: set[str] = set()  # names of declarations that no text has
        self.files: frozenset[Path] = frozenset()  # that were read for it
        self.trees: list[ast.File] = []  # of these files, an included one before the file that includes it
        self.is_shipped = False  # that of a library of Magus, which no file changes

    def declare(self, declaration: Named, report: Report) -> None:
        """Add a declaration under its own name."""
        if declaration.name in RESERVED:
            report.error(
                Code.MGS211, f"'{declaration.name}' is a word of the language", declaration.span, "choose another name"
            )
        self._add(Entry(declaration.name, kind_of(declaration), declaration, self), declaration.span, report)

    def use(self, use: ast.Use, library: "Scope", report: Report) -> None:
        """Add the devices of a library, or with an alias the library itself."""
        if use.alias is not None:
            self._add(Entry(use.alias, Kind.LIBRARY, use, library), use.span, report)
            self._libraries[use.alias] = library
            return
        for entry in library.devices():
            if self._shared.get(entry.name) != use.library:
                self._add(entry, use.span, report)
                self._shared[entry.name] = use.library

    def derive(self, declaration: Named) -> Entry:
        """Add a declaration that no text has, whose name no text declares, in place of an earlier one of that name."""
        self._derived.add(declaration.name)
        entry = Entry(declaration.name, kind_of(declaration), declaration, self)
        self._entries[declaration.name] = entry
        return entry

    @property
    def is_empty(self) -> bool:
        """Whether nothing is declared, used or asked."""
        return not self._entries and not self.questions

    def devices(self) -> Iterator[Entry]:
        """Iterate over the gpus, links, switches and implementations of this scope."""
        return (entry for entry in self._entries.values() if entry.kind in _DEVICES)

    def of_kind(self, *kinds: Kind) -> list[Entry]:
        """Return the entries of some kinds that this scope declares itself, in the order of the text."""
        return [entry for entry in self.own() if entry.kind in kinds]

    def own(self) -> list[Entry]:
        """Return all entries that this scope declares itself, in the order of the text."""
        found = (entry for entry in self._entries.values() if entry.scope is self)
        return [entry for entry in found if entry.name not in self._derived]

    def names(self, *kinds: Kind) -> list[str]:
        """Return all visible names of some kinds; those of libraries follow their alias."""
        own = [name for name, entry in self._entries.items() if entry.kind in kinds]
        return own + [
            f"{alias}.{entry.name}"
            for alias, library in self._libraries.items()
            for entry in library.devices()
            if entry.kind in kinds
        ]

    def lookup(self, names: tuple[str, ...]) -> Entry | None:
        """Return what ``name`` or ``library.name`` stands for, None if nothing has that name."""
        scope: Scope | None = self
        for alias in names[:-1]:
            scope = scope._libraries.get(alias) if scope is not None else None
        return scope._entries.get(names[-1]) if scope is not None else None

    def value(self, name: ast.Name, report: Report) -> Entry:
        """Look up a ``let`` or ``param``."""
        return self._find((name.text,), name.span, _VALUES, report)

    def find(self, path: ast.Path | ast.Expression, kind: Kind, report: Report) -> Entry:
        """Look up a declaration of one kind by ``name`` or ``library.name``."""
        names = path.names if isinstance(path, ast.Path) else dotted(path)
        if names is None:
            raise report.fail(Code.MGS210, f"the name of {kind.one} is expected here", path.span)
        return self._find(names, path.span, (kind,), report)

    def _find(self, names: tuple[str, ...], span: Span, kinds: tuple[Kind, ...], report: Report) -> Entry:
        entry = self.lookup(names)
        written, wanted = ".".join(names), kinds[0].value
        if entry is None:
            hint = did_you_mean(written, self.names(*kinds))
            if kinds[0] in _DEVICES:
                hint = _device_hint(wanted, names[-1], hint)
            if not hint and kinds == (Kind.KERNEL,):
                hint = f"declare it: kernel {written[:64]} {{ groups 32; get {{ load 16; store }} }}"
            word = "name" if kinds == _VALUES else wanted
            raise report.fail(Code.MGS203, f"unknown {word} '{written[:64]}'", span, hint)
        if entry.kind not in kinds:
            raise report.fail(Code.MGS210, f"'{written}' is {entry.kind.one}, {kinds[0].one} is expected here", span)
        return entry

    def _add(self, entry: Entry, span: Span, report: Report) -> None:
        earlier = self._entries.get(entry.name)
        if earlier is None:
            self._entries[entry.name] = entry
            return
        at = earlier.declaration.span
        self.declared_twice.add(entry.name)
        report.error(
            Code.MGS206,
            f"'{entry.name}' is defined twice",
            span,
            f"the first is the {earlier.kind.value} at {at.source.path}:{at.location.line}",
        )


def _device_hint(kind: str, name: str, in_scope: str) -> str:
    """What to write for a device that is not known: the library that declares it, or one that is named nearly so."""
    shipped = shipped_devices(kind)
    near = name if name in shipped else closest(name, shipped)
    if f".{name}'" in in_scope or (in_scope and near != name):
        return in_scope
    if not near:
        return f"declare it: {kind} {name[:64]} {{ ... }}"
    first, *others = shipped[near]
    lead = "add its library:" if near == name else f"did you mean '{near}'?"
    if not others:
        return f'{lead} use "{first}"'
    lead = "add the library of your GPU:" if near == name else lead
    return f"{lead} it is in {', '.join((first, *others[:3]))}{' and others' * (len(others) > 3)}"


def kind_of(declaration: Named) -> Kind:
    """Return the kind of name that a declaration defines."""
    match declaration:
        case ast.Let():
            return Kind.LET
        case ast.ParamNode():
            return Kind.PARAM
        case ast.DeviceNode():
            return Kind(declaration.kind)
        case ast.SystemNode():
            return Kind.SYSTEM
        case ast.WorkloadNode():
            return Kind.WORKLOAD
        case ast.TemplateNode() | ast.PlanNode():
            return Kind.SCHEDULE


def dotted(expression: ast.Expression | ast.Path) -> tuple[str, ...] | None:
    """Return the names of ``a.b.c``, or None if the expression is anything else."""
    names: list[str] = []
    while isinstance(expression, ast.Member):
        names.append(expression.name)
        expression = expression.base
    return None if not isinstance(expression, ast.Name) else (expression.text, *reversed(names))


_WORD = re.compile(r"[^\W\d]\w*")


class Soundness:
    """The sound declarations of ``scope``, given the errors in ``report`` so far."""

    def __init__(self, scope: Scope, report: Report) -> None:
        diagnostics = report.diagnostics
        errors = [diagnostic.span for diagnostic in diagnostics if diagnostic.severity is Severity.ERROR]
        self._own = {entry.name: entry for entry in scope.own()}
        read = {entry.declaration.span.source.path for entry in self._own.values()}
        # An error in a library, or in a value from outside, may affect every declaration.
        self._nothing = any(error.source.path not in read for error in errors)
        spans = {name: entry.declaration.span for name, entry in self._own.items()}
        wrong = {name for name, span in spans.items() if any(within(error, span) for error in errors)}
        self._wrong = _spread(
            wrong | scope.declared_twice, {name: self._named(entry) for name, entry in self._own.items()}
        )

    def of_name(self, name: str) -> bool:
        """Whether the declaration of that name, and all it depends on, is sound."""
        return not self._nothing and name not in self._wrong

    def _named(self, entry: Entry) -> frozenset[str]:
        return words_in(entry.declaration.span) & self._own.keys()


def words_in(span: Span) -> frozenset[str]:
    """Return all words of a text, including comments."""
    return frozenset(_WORD.findall(span.text))


def within(inner: Span, outer: Span) -> bool:
    """Whether ``inner`` begins in ``outer``."""
    return inner.source.path == outer.source.path and outer.start <= inner.start < outer.end


def _spread(wrong: set[str], named: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return ``wrong`` and all names that depend on one of them, directly or through others."""
    named_by = defaultdict[str, list[str]](list)
    for name, words in named.items():
        for word in words:
            named_by[word].append(name)
    spread, waiting = set(wrong), list(wrong)
    while waiting:
        following = [name for name in named_by[waiting.pop()] if name not in spread]
        spread.update(following)
        waiting.extend(following)
    return frozenset(spread)
