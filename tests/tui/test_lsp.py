"""``magus lsp`` driven by a real client over stdio."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pygls", reason="the extra lsp is not installed")

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from magus.compiler.text.fmt import format_text
from tests.helpers.editing import BEGINNING
from tests.helpers.hostile_text import EVERYTHING, is_safe
from tests.helpers.language_client import connected


def place(text: str, within: str = BEGINNING) -> tuple[int, int]:
    before = within[: within.index(text)]
    return before.count("\n"), len(before) - before.rfind("\n") - 1


async def test_what_an_editor_asks(tmp_path: Path) -> None:
    """One server answers all of it: a start takes longer than any answer."""
    uri = (tmp_path / "é 1@2.mgs").as_uri()
    assert "%" in uri, "editors escape what is not plain"
    async with connected(uri) as client:
        assert await client.open(BEGINNING) == []

        (mistake,) = await client.change(BEGINNING + "let Z = 3 s + 2 B\n")
        assert (mistake.code, mistake.severity, mistake.source) == ("MGS303", types.DiagnosticSeverity.Error, "magus")
        assert mistake.range == types.Range(types.Position(12, 8), types.Position(12, 17))
        assert mistake.message == "cannot add time and bytes\nthis '+' joins different things"

        hover = await client.ask("hover", *place("K]"))
        assert hover.contents.value == "```mgs\nlet K = 4096\n```\n\n= 4096"

        offered = await client.ask("completion", *place("MI300X;"))
        assert [each.label for each in offered.items[:3]] == ["MI300X", "mine", "nv.H100"]
        assert offered.items[0].text_edit.range.start == types.Position(*place("MI300X;"))

        (line, column) = place("node {\n")
        definition = await client.ask("definition", line, column)
        assert (definition.uri, definition.range.start) == (uri, types.Position(5, 7))

        library = await client.ask("definition", *place("MI300X;"))
        assert library.uri.endswith("/library/amd/mi300x.mgs")

        edit = await client.ask("rename", *place("x = tensor"), new_name="tokens")
        assert [each.range.start.line for each in edit.changes[uri]] == [7, 9]
        assert (await client.ask("prepare_rename", *place("x = tensor"))).end.character == 3
        with pytest.raises(JsonRpcException, match="'M' is taken"):
            await client.ask("rename", *place("K = 4096"), new_name="M")

        uses = await client.ask("references", *place("K = 4096"), context=types.ReferenceContext(True))
        assert [each.range.start.line for each in uses] == [2, 7, 8]

        listed = await client.language.text_document_document_symbol_async(types.DocumentSymbolParams(client.document))
        assert [each.name for each in listed or ()] == ["K", "M", "mine", "node", "up", "fine", "Z"]

        colours = await client.language.text_document_semantic_tokens_full_async(
            types.SemanticTokensParams(client.document)
        )
        assert colours is not None
        assert len(colours.data) % 5 == 0 and len(colours.data) > 300

        options = types.FormattingOptions(tab_size=2, insert_spaces=True)
        format_params = types.DocumentFormattingParams(options=options, text_document=client.document)
        (formatted,) = await client.language.text_document_formatting_async(format_params) or ()
        assert formatted.new_text == format_text(BEGINNING + "let Z = 3 s + 2 B\n")


@pytest.mark.slow
async def test_a_text_that_is_in_no_file_has_its_definitions_in_itself() -> None:
    async with connected("untitled:Untitled-1") as client:
        assert await client.open(BEGINNING) == []
        definition = await client.ask("definition", *place("node {\n"))
        assert definition.uri == client.uri
        client.language.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([]))
        assert await client.diagnostics() == [], "under the name that the client gave"


@pytest.mark.slow
async def test_a_name_is_renamed_where_files_of_the_workspace_include_it(tmp_path: Path) -> None:
    texts = {"rows.mgs": "let K = 4096\n", "a.mgs": 'include "rows.mgs"\nlet L = 2 * K\n', "b.mgs": "let K = 1\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    uri = (tmp_path / "rows.mgs").as_uri()
    async with connected(uri, tmp_path.as_uri()) as client:
        await client.open(texts["rows.mgs"])
        edit = await client.ask("rename", 0, 4, new_name="depth")

        assert set(edit.changes) == {uri, (tmp_path / "a.mgs").as_uri()}
        (used,) = edit.changes[(tmp_path / "a.mgs").as_uri()]
        assert used.range.start == types.Position(1, 12) and used.new_text == "depth"
        with pytest.raises(JsonRpcException, match=r"'L' is taken in a\.mgs"):
            await client.ask("rename", 0, 4, new_name="L")


@pytest.mark.slow
def test_a_question_with_wrong_params_is_answered_with_an_error() -> None:
    requested: tuple[tuple[str, object], ...] = (
        ("initialize", {"capabilities": {}}),
        ("textDocument/hover", {"position": "here"}),
        ("shutdown", None),
    )
    messages = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()
        for number, (method, params) in enumerate(requested)
    ]
    reported = b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(message), message) for message in messages)
    done = subprocess.run(
        [sys.executable, "-m", "magus.tui.cli", "lsp"], input=reported, capture_output=True, timeout=60
    )
    answers = [json.loads(part[: part.rindex(b"}") + 1]) for part in done.stdout.split(b"\r\n\r\n")[1:]]
    by_id = {answer["id"]: answer for answer in answers if "id" in answer}

    assert by_id[1]["error"]["code"] == types.ErrorCodes.InvalidParams
    assert "result" in by_id[0] and "result" in by_id[2], "others are answered as ever"


@pytest.mark.slow
async def test_nothing_brings_it_down(tmp_path: Path) -> None:
    uri = (tmp_path / "gone" / "b.mgs").as_uri()
    async with connected(uri) as client:
        assert (await client.open('include "own.mgs"\n'))[0].code == "MGS120"
        for text in ("\0\1\2", "x" * 1_048_577, "{" * 400, '"', "a\n" * 300, EVERYTHING, "let a = 1 +\r\n"):
            found = await client.change(text)
            assert found and all(is_safe(each.message) for each in found)
            for line, character in ((0, 2**31 - 1), (10**6, 3)):
                await client.ask("hover", line, character)
                await client.ask("completion", line, character)
        found = await client.change(BEGINNING + "let 😋 = 1\nlet c = d\n")
        assert {each.code for each in found} >= {"MGS106"}
        wrong = (await client.change(BEGINNING + 'let s = "😋" d\n'))[0]
        assert wrong.range.start.character <= len('let s = "😋" d') + 1
        assert await client.change(BEGINNING) == []


@pytest.mark.slow
def test_it_ends_with_its_input() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "magus.tui.cli", "lsp"], input=b"Content-Length: 5\r\n\r\nnoise", capture_output=True
    )

    assert done.returncode == 0
    assert b"Traceback" not in done.stderr


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "pygls.py").write_text("raise ImportError('no', name='pygls')\n", encoding="utf-8")
    (tmp_path / "lsprotocol.py").write_text("raise ImportError('no', name='lsprotocol')\n", encoding="utf-8")
    paths = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, "-m", "magus.tui.cli", "lsp"],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 2
    assert done.stderr == "MGS432 error: lsprotocol is not installed\n  help: pip install 'magus-gpu[lsp]'\n"
