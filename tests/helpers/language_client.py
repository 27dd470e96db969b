"""A real client of the language server, over stdio; the extra ``lsp`` is there."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient

WAIT_S = 30.0


class Client:
    """A client with one open document."""

    def __init__(self, uri: str) -> None:
        self.uri, self.version = uri, 0
        self.language = LanguageClient("tests", "1")
        self.published: asyncio.Queue[types.PublishDiagnosticsParams] = asyncio.Queue()

        @self.language.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)  # type: ignore[untyped-decorator]
        def publish(params: types.PublishDiagnosticsParams) -> None:
            self.published.put_nowait(params)

    @property
    def document(self) -> types.TextDocumentIdentifier:
        return types.TextDocumentIdentifier(self.uri)

    async def open(self, text: str) -> list[types.Diagnostic]:
        """Open the document; return its diagnostics."""
        item = types.TextDocumentItem(self.uri, "mgs", 0, text)
        self.language.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return await self.diagnostics()

    async def change(self, text: str) -> list[types.Diagnostic]:
        """Put another text in; return its diagnostics."""
        self.version += 1
        which = types.VersionedTextDocumentIdentifier(version=self.version, uri=self.uri)
        change = types.TextDocumentContentChangeWholeDocument(text)
        self.language.text_document_did_change(types.DidChangeTextDocumentParams(which, [change]))
        return await self.diagnostics()

    async def diagnostics(self) -> list[types.Diagnostic]:
        """Return the diagnostics that come next."""
        published = await asyncio.wait_for(self.published.get(), WAIT_S)
        assert published.uri == self.uri
        return list(published.diagnostics)

    async def ask(self, question: str, line: int, character: int, **more: Any) -> Any:
        """Ask about a place: ``hover``, ``completion`` and so on."""
        kinds = {"hover": types.HoverParams, "completion": types.CompletionParams, "rename": types.RenameParams}
        kinds |= {"definition": types.DefinitionParams, "prepare_rename": types.PrepareRenameParams}
        kinds |= {"references": types.ReferenceParams}
        params = kinds[question](text_document=self.document, position=types.Position(line, character), **more)
        return await asyncio.wait_for(getattr(self.language, f"text_document_{question}_async")(params), WAIT_S)


@asynccontextmanager
async def connected(uri: str, root_uri: str | None = None) -> AsyncIterator[Client]:
    """Start ``magus lsp`` in a workspace and say hello; at the end say goodbye, and check that it ends well."""
    client = Client(uri)
    await client.language.start_io(sys.executable, "-m", "magus.tui.cli", "lsp")
    capabilities = types.ClientCapabilities()
    await asyncio.wait_for(
        client.language.initialize_async(types.InitializeParams(capabilities, root_uri=root_uri)), WAIT_S
    )
    client.language.initialized(types.InitializedParams())
    try:
        yield client
        await asyncio.wait_for(client.language.shutdown_async(None), WAIT_S)
        client.language.exit(None)
        server = client.language._server
        assert server is not None
        assert await asyncio.wait_for(server.wait(), WAIT_S) == 0
    finally:
        await client.language.stop()  # type: ignore[no-untyped-call]
