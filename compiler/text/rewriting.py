"""Rewrite a text with other numbers: values of its params, and numbers of the devices that it declares or uses.

Everything else stays as it is written, comments included. A device of a library becomes one of the file that extends
it under its own name, so that nothing else in the file changes.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap

from ..codes import Code
from ..ir import Settings
from . import syntax as ast
from .diagnostics import Report, Source, Span, did_you_mean, printable
from .load import library_devices
from .parsing.parse import parse_value
from .vocabulary import CACHES

NOTE = '@assumed "what if"'
"""The origin of a number that was changed."""

# The words in front of the numbers of a block of a GPU, where its path has another.
_HEADS = {path: ("cache", name) for name, path in CACHES.items()}


@dataclass(frozen=True, slots=True)
class _Edit:
    """Put ``text`` in place of the characters from ``start`` to ``end``."""

    start: int
    end: int
    text: str


def with_params(source: Source, file: ast.File, params: Settings, report: Report) -> Source:
    """Return the text in which ``params`` have other values.

    Raises
    ------
    GaveUp
        If the file itself does not declare one of them, or a text is no value.
    """
    declared = {each.name: each for each in file.declarations if isinstance(each, ast.ParamNode)}
    edits = []
    for name, text in params:
        if name not in declared:
            raise _unknown(name, "parameter", declared, report)
        old = declared[name].values
        edits.append(_Edit(old[0].span.start, old[-1].span.end, value_text(name, text, report)))
    return _edited(source, edits)


def with_numbers(source: Source, file: ast.File, numbers: Settings, report: Report) -> Source:
    """Return the text in which ``numbers`` of devices, such as ``MI300X.hbm.achieved``, have other values.

    Raises
    ------
    GaveUp
        If the file itself neither declares nor uses a device, or a text is no value.
    """
    by_device: dict[str, dict[str, str]] = defaultdict(dict)
    for name, text in numbers:
        device, _, path = name.partition(".")
        by_device[device][path] = value_text(name, text, report)
    rewriting = _Devices(file, report)
    for device, values in by_device.items():
        rewriting.change(device, values)
    return _edited(source, rewriting.edits())


def without(source: Source, declarations: Sequence[ast.Declaration]) -> Source:
    """Return the text in which ``declarations`` are comments."""
    edits = []
    for each in declarations:
        lines = [f"# {line}" for line in each.span.text.splitlines()]
        edits.append(_Edit(each.span.start, each.span.end, "\n".join(["# Left out, it does not fit here:", *lines])))
    return _edited(source, edits)


def value_text(name: str, text: str, report: Report) -> str:
    """Return ``text`` without what stands around its value; a text that is not one value is reported."""
    source = Source(name, text)
    values = parse_value(source, report)
    if len(values) != 1:
        raise report.fail(Code.MGS114, "two values side by side", Span(source, 0, len(text)), "for instance 4.2 TB/s")
    return values[0].span.text


@dataclass(slots=True)
class _Devices:
    """The devices of a file, and what is to change: values by path of devices by name."""

    file: ast.File
    report: Report
    found: list[_Edit] = field(default_factory=list)
    extended: dict[ast.Use, dict[str, Mapping[str, str]]] = field(default_factory=dict)

    def change(self, name: str, values: Mapping[str, str]) -> None:
        """Change numbers of the device ``name``."""
        own = [each for each in self.file.declarations if isinstance(each, ast.DeviceNode) and each.name == name]
        uses = [each for each in self.file.declarations if isinstance(each, ast.Use) and name in _kinds(each)]
        if own:
            self.found += _in_place(own[0], values)
        elif len(uses) == 1:
            self.extended.setdefault(uses[0], {})[name] = values
        elif uses:
            span = uses[1].span
            raise self.report.fail(Code.MGS206, f"'{name}' is the name of two devices", span, "declare one of your own")
        else:
            raise _unknown(name, "device", self._names(), self.report)

    def edits(self) -> list[_Edit]:
        """Return all that is to change in the text."""
        return [*self.found, *(edit for use, devices in self.extended.items() for edit in self._extends(use, devices))]

    def _extends(self, use: ast.Use, devices: Mapping[str, Mapping[str, str]]) -> Iterator[_Edit]:
        """Yield the edits that make devices of a library the file's own.

        Without a prefix the library gets one, and all of its devices are declared again: that leaves their names.
        """
        prefix = use.alias or self._free(use.library.replace("/", "_"))
        wanted = _kinds(use) if use.alias is None else devices
        blocks = [_extension(_kinds(use)[name], name, prefix, devices.get(name, {})) for name in wanted]
        line_end = use.span.source.text.find("\n", use.span.end)
        below = line_end if line_end >= 0 else len(use.span.source.text)
        yield _Edit(use.span.start, use.span.end, f'use "{use.library}" as {prefix}')
        yield _Edit(below, below, "\n\n" + "\n".join(blocks))
        if use.alias is not None:
            for span in _references(self.file.declarations, prefix, set(devices)):
                yield _Edit(span.start, span.end, span.text.rpartition(".")[2])

    def _free(self, name: str) -> str:
        taken = self._names() | {each.alias for each in self.file.declarations if isinstance(each, ast.Use)}
        while name in taken:
            name += "_"
        return name

    def _names(self) -> set[str]:
        return {
            each.name for each in self.file.declarations if isinstance(each, ast.DeviceNode | ast.SystemNode | ast.Let)
        } | {name for each in self.file.declarations if isinstance(each, ast.Use) for name in _kinds(each)}


def _unknown(name: str, kind: str, known: Mapping[str, object] | set[str], report: Report) -> Exception:
    span = Span(Source(name, name), 0, len(name))
    hint = did_you_mean(name, known) or "what an included file declares is changed there"
    return report.fail(Code.MGS203, f"the file itself has no {kind} '{name[:64]}'", span, hint)


def _kinds(use: ast.Use) -> Mapping[str, str]:
    """The devices of a library: their kinds by name."""
    return {each.name: each.kind for each in library_devices(use.library) if each.kind != "implementation"}


def _extension(kind: str, name: str, prefix: str, values: Mapping[str, str]) -> str:
    if not values:
        return f"{kind} {name} extends {prefix}.{name} {{}}"
    lines = (f"  {_statement(path, value)}" for path, value in values.items())
    return "\n".join([f"{kind} {name} extends {prefix}.{name} {{", *lines, "}"])


def _heads(path: str) -> list[tuple[str, ...]]:
    """The words in front of a number, block by block."""
    return [_HEADS.get(word, (word,)) for word in path.split(".")]


def _statement(path: str, value: str) -> str:
    """The statement of one number, in the blocks around it."""
    *blocks, (last,) = _heads(path)
    if blocks == [("peak",)]:
        return f"peak {last} {value} {NOTE}"
    inner = f"per {value} sms {NOTE}" if path == "l2.per" else f"{last} {value} {NOTE}"
    for words in reversed(blocks):
        inner = f"{' '.join(words)} {{ {inner} }}"
    return inner


def _in_place(device: ast.DeviceNode, values: Mapping[str, str]) -> Iterator[_Edit]:
    """Yield the edits of a block: of numbers that it states, and of those that it inherits."""
    new = []
    for path, value in values.items():
        span = _stated(device.block, path)
        if span is None:
            new.append(f"  {_statement(path, value)}")
        else:
            yield _Edit(span.start, span.end, f"{value} sms {NOTE}" if path == "l2.per" else f"{value} {NOTE}")
    if new:
        end = device.block.span.end - 1
        yield _Edit(end, end, "\n".join(["", *new, ""]))


def _stated(block: ast.BlockNode, path: str) -> Span | None:
    """The value of a number with its note, as a block states it; None if it does not."""
    heads = _heads(path)
    for words in heads[:-1]:
        if words == ("peak",):
            return _peak(block, path.rpartition(".")[2])
        inner = next((each.block for each in _said(block, words) if each.block is not None), None)
        if inner is None:
            return None
        block = inner
    statement = next(iter(_said(block, heads[-1])), None)
    if statement is None or len(statement.phrase[0].parts) < 2:
        return None
    return statement.phrase[0].parts[1].span.to(statement.phrase[0].span)


def _peak(block: ast.BlockNode, dtype: str) -> Span | None:
    for statement in _said(block, ("peak",)):
        for idx, group in enumerate(statement.phrase):
            parts = group.parts[1 if idx == 0 else 0 :]
            if len(parts) > 1 and isinstance(parts[0], ast.Name) and parts[0].text == dtype:
                return parts[1].span.to(group.span)
    return None


def _said(block: ast.BlockNode, words: tuple[str, ...]) -> Iterator[ast.Say]:
    """Yield the statements of a block that begin with ``words``."""
    for statement in block.statements:
        if isinstance(statement, ast.Say):
            first = statement.phrase[0].parts[: len(words)]
            if tuple(part.text if isinstance(part, ast.Name) else "" for part in first) == words:
                yield statement


def references_to(tree: object, names: set[str]) -> Iterator[Span]:
    """Yield the places where a part of a tree says one of ``names``."""
    return (each.span for each in ast.nodes_in(tree) if isinstance(each, ast.Name) and each.text in names)


def _references(tree: object, prefix: str, names: set[str]) -> Iterator[Span]:
    """Yield the places where a part of a tree says ``prefix.name``."""
    for node in ast.nodes_in(tree):
        match node:
            case ast.Path(names=(first, last)) | ast.Member(base=ast.Name(text=first), name=last):
                if first == prefix and last in names:
                    yield node.span


def _edited(source: Source, edits: Sequence[_Edit]) -> Source:
    """Return the text with all edits, which do not overlap."""
    text = source.text
    for edit in sorted(edits, key=lambda each: each.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return Source(source.path, text)


WIDTH = 96
"""Characters of a line, without its sign."""


def comment_lines(sentence: str, mark: str = "") -> list[str]:
    """Return the lines of a comment that begins with ``mark``; further lines are indented by as much."""
    after = " " * len(mark)
    lines = wrap(printable(sentence), WIDTH, initial_indent=mark, subsequent_indent=after, break_on_hyphens=False)
    return [f"# {each}".rstrip() for each in lines or [mark]]
