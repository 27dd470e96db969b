"""The language server: which question of an editor which service answers. Work is done in threads, messages in one."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlparse

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol
from pygls.uris import from_fs_path, to_fs_path
from pygls.workspace import PositionCodec, ServerTextPosition, TextDocument

from .. import __version__
from ..compiler.services.completion import Completion, CompletionKind, Completions, complete
from ..compiler.services.document import Colour, Coloured, Document, colours, read_document
from ..compiler.services.hover import Hover, hover
from ..compiler.services.names import (
    FilePlace,
    RenameError,
    Symbol,
    all_occurrences,
    definition,
    occurrence_at,
    renameable,
    renaming,
    symbols,
)
from ..compiler.text.diagnostics import CompileError, Diagnostic, Report, Severity, Source, Span, printable
from ..compiler.text.fmt import format_text
from ..compiler.text.load import read_source
from ..compiler.text.names import Kind

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


MAX_FILES = 1000
"""Files of a workspace in which a name is looked for."""
TRIGGERS = [".", "=", "(", "@", '"', " "]

T = TypeVar("T")
_Changed = types.DidChangeTextDocumentParams | types.DidOpenTextDocumentParams | types.DidSaveTextDocumentParams


class MagusProtocol(LanguageServerProtocol):
    """The protocol, in which every question has an answer: pygls leaves one with wrong params without."""

    def structure_message(self, data: dict[str, Any]) -> Any:
        """Read a message; say what is wrong to whoever asked."""
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            if "method" in data and isinstance(data.get("id"), str | int):
                self._send_response(data["id"], error=error.to_response_error())
            raise


class MagusServer(LanguageServer):
    """Answers for the documents that a client has open."""

    def __init__(self) -> None:
        full = types.TextDocumentSyncKind.Full
        super().__init__("magus", __version__, text_document_sync_kind=full, protocol_cls=MagusProtocol)
        self._stale: set[str] = set()
        self._checks: dict[str, asyncio.Task[None]] = {}

    def text_of(self, uri: str) -> str:
        """Return the text of an open document; empty if it is not open, whatever is on disk."""
        document = self.open_document(uri)
        return document.source if document is not None else ""

    def open_document(self, uri: str) -> TextDocument | None:
        """Return an open document; clients write one URI in more ways than one, and pygls files it without escapes."""
        documents: Mapping[str, TextDocument] = self.workspace.text_documents
        return documents.get(unquote(uri)) or documents.get(uri)

    def includers(self, path: str) -> list[Document]:
        """Return the texts of the folders of the workspace that include others, except that at ``path``."""
        opened = {path_of(uri): text.source for uri, text in self.workspace.text_documents.items()}
        folders = [path_of(each.uri) for each in self.workspace.folders.values()] or [self.workspace.root_path]
        files = (file for folder in folders if folder for file in sorted(Path(folder).rglob("*.mgs")))
        documents = (_document_in(file, opened.get(str(file))) for file in islice(files, MAX_FILES))
        return [each for each in documents if each is not None and each.source.path != path]

    async def ask(self, uri: str, question: Callable[[Document, Positions], T]) -> T:
        """Ask a question about the text of a document, in a thread."""
        text, path, codec = self.text_of(uri), path_of(uri), self.workspace.position_codec

        def answer() -> T:
            document = read_document(text, path)
            return question(document, Positions(document.source, codec))

        return await asyncio.to_thread(answer)

    def check(self, uri: str) -> None:
        """Publish the diagnostics of a document: at once, or after those of the text before, which nobody waits for."""
        self._stale.add(uri)
        if uri not in self._checks:
            self._checks[uri] = asyncio.get_running_loop().create_task(self._check(uri))

    def forget(self, uri: str) -> None:
        """Take back the diagnostics of a document that was closed."""
        self._stale.discard(uri)
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    async def _check(self, uri: str) -> None:
        try:
            while uri in self._stale:
                self._stale.discard(uri)
                found = await self.ask(
                    uri, lambda document, places: [places.diagnostic(each) for each in document.diagnostics]
                )
                opened = self.open_document(uri)
                if opened is not None and uri not in self._stale:
                    self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found, opened.version))
        finally:
            del self._checks[uri]


def make_server() -> MagusServer:
    """Return a server that answers all questions; ``start_io`` serves stdin and stdout."""
    server = MagusServer()
    _follow_documents(server)
    _answer_about_places(server)
    _answer_about_names(server)
    _answer_about_texts(server)
    return server


def _follow_documents(server: MagusServer) -> None:
    for event in (types.TEXT_DOCUMENT_DID_OPEN, types.TEXT_DOCUMENT_DID_CHANGE, types.TEXT_DOCUMENT_DID_SAVE):

        @server.feature(event)
        async def changed(params: _Changed) -> None:
            server.check(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    async def closed(params: types.DidCloseTextDocumentParams) -> None:
        server.forget(params.text_document.uri)

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    async def files_changed(params: types.DidChangeWatchedFilesParams) -> None:
        read_document.cache_clear()  # what texts include is read from disk
        for document in server.workspace.text_documents.values():
            server.check(document.uri)


def _answer_about_places(server: MagusServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=TRIGGERS))
    async def completed(params: types.CompletionParams) -> types.CompletionList:
        return await server.ask(
            params.text_document.uri,
            lambda document, places: places.completions(complete(document, places.offset(params.position))),
        )

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def hovered(params: types.HoverParams) -> types.Hover | None:
        def answer(document: Document, places: Positions) -> types.Hover | None:
            found = hover(document, places.offset(params.position))
            return places.hover(found) if found is not None else None

        return await server.ask(params.text_document.uri, answer)

    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    async def defined(params: types.DefinitionParams) -> types.Location | None:
        def answer(document: Document, places: Positions) -> types.Location | None:
            target = definition(document, places.offset(params.position))
            return location(target, document, params.text_document.uri) if target is not None else None

        return await server.ask(params.text_document.uri, answer)


def _answer_about_names(server: MagusServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_REFERENCES)
    async def referred(params: types.ReferenceParams) -> list[types.Location]:
        def answer(document: Document, places: Positions) -> list[types.Location]:
            use = occurrence_at(document, places.offset(params.position))
            uses = all_occurrences(document, use) if use is not None else ()
            here = [each.span for each in uses if each.span.source.path == document.source.path]
            return [types.Location(params.text_document.uri, places.range(each)) for each in here]

        return await server.ask(params.text_document.uri, answer)

    @server.feature(types.TEXT_DOCUMENT_PREPARE_RENAME)
    async def prepared(params: types.PrepareRenameParams) -> types.Range | None:
        def answer(document: Document, places: Positions) -> types.Range | None:
            return places.range(renameable(document, places.offset(params.position)).span)

        return await _refusing(server.ask(params.text_document.uri, answer))

    @server.feature(types.TEXT_DOCUMENT_RENAME, types.RenameOptions(prepare_provider=True))
    async def renamed(params: types.RenameParams) -> types.WorkspaceEdit:
        uri, codec = params.text_document.uri, server.workspace.position_codec

        def answer(document: Document, places: Positions) -> types.WorkspaceEdit:
            includers = server.includers(document.source.path)
            changed = renaming(document, places.offset(params.position), params.new_name, includers)
            edits = {
                uri if each.source.path == document.source.path else uri_of(each.source.path): [
                    types.TextEdit(Positions(each.source, codec).range(use.span), each.new_name) for use in each.uses
                ]
                for each in changed
            }
            return types.WorkspaceEdit(changes=edits)

        return await _refusing(server.ask(uri, answer))


def _document_in(file: Path, text: str | None) -> Document | None:
    """The document in a file, as a client has it open or from disk; None if it includes nothing or cannot be read."""
    report = Report()
    with report.trial():
        text = read_source(file, report).text if text is None else text
        return read_document(text, str(file)) if "include" in text else None
    return None


async def _refusing(answer: "asyncio.Future[T] | object") -> T:
    """Await an answer; what cannot be renamed is said to the user."""
    try:
        return await answer  # type: ignore[misc, no-any-return]
    except RenameError as error:
        raise JsonRpcInvalidParams(str(error)) from None


def _answer_about_texts(server: MagusServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_FORMATTING)
    async def formatted(params: types.DocumentFormattingParams) -> list[types.TextEdit] | None:
        def answer(document: Document, places: Positions) -> list[types.TextEdit] | None:
            try:
                text = format_text(document.source.text, document.source.path)
            except CompileError:
                return None  # its diagnostics say why
            return [places.replacing_all(text)] if text != document.source.text else []

        return await server.ask(params.text_document.uri, answer)

    @server.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    async def listed(params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
        return await server.ask(
            params.text_document.uri, lambda document, places: [places.symbol(each) for each in symbols(document)]
        )

    @server.feature(types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, LEGEND)
    async def coloured(params: types.SemanticTokensParams) -> types.SemanticTokens:
        return await server.ask(
            params.text_document.uri, lambda document, places: places.tokens(colours(document.source.text))
        )
