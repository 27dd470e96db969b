"""Between the services, which count characters of a text, and the protocol, which counts lines and units of UTF-16."""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

from lsprotocol import types
from pygls.uris import from_fs_path, to_fs_path
from pygls.workspace import PositionCodec, ServerTextPosition

from ...compiler.services.completion import Completion, CompletionKind, Completions
from ...compiler.services.document import Colour, Coloured, Document
from ...compiler.services.hover import Hover
from ...compiler.services.names import FilePlace, Renamed, Symbol
from ...compiler.text.diagnostics import Diagnostic, Severity, Source, Span, printable
from ...compiler.text.names import Kind

_COMPLETION_KINDS = {
    CompletionKind.WORD: types.CompletionItemKind.Keyword,
    CompletionKind.CALL: types.CompletionItemKind.Function,
    CompletionKind.ARGUMENT: types.CompletionItemKind.Property,
    CompletionKind.NAME: types.CompletionItemKind.Variable,
    CompletionKind.UNIT: types.CompletionItemKind.Unit,
    CompletionKind.LIBRARY: types.CompletionItemKind.Module,
}
_SYMBOL_KINDS = {
    Kind.LET: types.SymbolKind.Constant,
    Kind.PARAM: types.SymbolKind.Variable,
    Kind.GPU: types.SymbolKind.Struct,
    Kind.LINK: types.SymbolKind.Struct,
    Kind.SWITCH: types.SymbolKind.Struct,
    Kind.IMPLEMENTATION: types.SymbolKind.Interface,
    Kind.KERNEL: types.SymbolKind.Function,
    Kind.SYSTEM: types.SymbolKind.Class,
    Kind.WORKLOAD: types.SymbolKind.Module,
    Kind.SCHEDULE: types.SymbolKind.Function,
}
_TOKEN_TYPES = {
    Colour.KEYWORD: "keyword",
    Colour.WORD: "property",
    Colour.FUNCTION: "function",
    Colour.TYPE: "type",
    Colour.NAME: "variable",
    Colour.NUMBER: "number",
    Colour.UNIT: "number",
    Colour.TEXT: "string",
    Colour.COMMENT: "comment",
    Colour.OPERATOR: "operator",
    Colour.ORIGIN: "decorator",
}
LEGEND = types.SemanticTokensLegend(list(dict.fromkeys(_TOKEN_TYPES.values())), [])


def path_of(uri: str) -> str:
    """Return the path of a document; of one that is in no file its name."""
    return to_fs_path(uri) or unquote(urlparse(uri).path) or uri


def uri_of(path: Path | str) -> str:
    """Return the URI of a file."""
    return from_fs_path(str(path)) or Path(path).as_uri()


class Positions:
    """Places of one text in the units that a client counts."""

    def __init__(self, source: Source, codec: PositionCodec) -> None:
        self.source, self._codec = source, codec
        self._lines = source.text.split("\n")

    def offset(self, position: types.Position) -> int:
        """Return the offset of a position; one outside of the text is taken to its nearest end."""
        if position.line >= len(self._lines):
            return len(self.source.text)
        at = self._codec.position_from_client_units(self._lines, position)
        return self.source.start_of(at.line + 1) + min(at.character, len(self._lines[at.line]))

    def position(self, offset: int) -> types.Position:
        """Return the position of an offset."""
        at = self.source.location(offset)
        return self._codec.position_to_client_units(self._lines, ServerTextPosition(at.line - 1, at.column - 1))

    def range(self, span: Span) -> types.Range:
        """Return the range of a span of this text."""
        return types.Range(self.position(span.start), self.position(span.end))

    def diagnostic(self, diagnostic: Diagnostic) -> types.Diagnostic:
        """Return a diagnostic; its hint is a line of the message."""
        is_error = diagnostic.severity is Severity.ERROR
        return types.Diagnostic(
            self.range(diagnostic.span),
            "\n".join(printable(each) for each in (diagnostic.message, diagnostic.hint) if each),
            types.DiagnosticSeverity.Error if is_error else types.DiagnosticSeverity.Warning,
            code=diagnostic.code.name,
            source="magus",
        )

    def completions(self, found: Completions) -> types.CompletionList:
        """Return what may be written, in its order."""
        where = types.Range(self.position(found.start), self.position(found.end))
        items = [_completion(idx, each, where) for idx, each in enumerate(found.all)]
        return types.CompletionList(is_incomplete=False, items=items)

    def hover(self, hover: Hover) -> types.Hover:
        """Return what is known, as Markdown: text of the file stands in a fence, or escaped."""
        fenced = printable(hover.code).replace("```", "'''")
        lines = [f"```mgs\n{fenced}\n```", *(_markdown(each) for each in hover.sentences)]
        content = types.MarkupContent(types.MarkupKind.Markdown, "\n\n".join(lines))
        return types.Hover(content, self.range(hover.span))

    def symbol(self, symbol: Symbol) -> types.DocumentSymbol:
        """Return a symbol with those inside it."""
        kind = _SYMBOL_KINDS.get(symbol.kind, types.SymbolKind.Field) if symbol.kind else types.SymbolKind.Field
        where = self.range(symbol.span)
        inner = [self.symbol(each) for each in symbol.children]
        return types.DocumentSymbol(symbol.name, kind, where, where, detail=symbol.detail, children=inner)

    def tokens(self, coloured: Sequence[Coloured]) -> types.SemanticTokens:
        """Return colours as the protocol packs them: five numbers each, places relative to the one before."""
        data: list[int] = []
        line, column = 0, 0
        for each in coloured:
            start, end = self.position(each.start), self.position(each.end)
            column_before = column if start.line == line else 0
            kind = LEGEND.token_types.index(_TOKEN_TYPES[each.colour])
            data += [start.line - line, start.character - column_before, end.character - start.character, kind, 0]
            line, column = start.line, start.character
        return types.SemanticTokens(data)

    def edits(self, renamed: Renamed) -> list[types.TextEdit]:
        """Return the edits that give a name another one."""
        return [types.TextEdit(self.range(use.span), renamed.new_name) for use in renamed.uses]

    def replacing_all(self, text: str) -> types.TextEdit:
        """Return the edit that makes ``text`` of the whole text."""
        return types.TextEdit(types.Range(types.Position(0, 0), self.position(len(self.source.text))), text)


def location(target: FilePlace, document: Document, uri: str) -> types.Location:
    """Return a place in the ``document`` at ``uri``, which may be in no file, or in another file.

    Names are of characters of which UTF-16 counts one each.
    """
    start, end = target.start, target.end
    where = types.Range(types.Position(start.line - 1, start.column - 1), types.Position(end.line - 1, end.column - 1))
    here = str(target.path) == document.source.path
    return types.Location(uri if here else uri_of(target.path), where)


def _completion(order: int, each: Completion, where: types.Range) -> types.CompletionItem:
    return types.CompletionItem(
        printable(each.text),
        kind=_COMPLETION_KINDS[each.kind],
        detail=each.detail or None,
        documentation=types.MarkupContent(types.MarkupKind.Markdown, _markdown(each.doc)) if each.doc else None,
        sort_text=f"{order:05}",
        text_edit=types.TextEdit(where, each.text),
    )


def _markdown(sentence: str) -> str:
    """A sentence of the services, in which only quoted words have a meaning for Markdown."""
    parts = printable(sentence).split("`")
    escaped = ["".join(f"\\{letter}" if letter in "\\*_{}[]<>#|!" else letter for letter in part) for part in parts]
    return "".join(f"`{part}`" if idx % 2 and idx < len(parts) - 1 else escaped[idx] for idx, part in enumerate(parts))
