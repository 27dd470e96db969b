"""Bad and hostile input: always a diagnostic, never a traceback, and soon: work is bounded, however long the text."""

import json
from pathlib import Path

import pytest

from magus.compiler import CompileError, compile_file, compile_text, format_text
from magus.compiler.text.diagnostics import as_json, render_text
from tests.helpers.work import calls_of

MOST_CALLS = 2_000_000
"""Of Python functions: the promise is 2 s on a desktop, which makes some million a second."""


def codes_of(text: str) -> set[str]:
    found: set[str] = set()

    def compile_and_render() -> None:
        with pytest.raises(CompileError) as caught:
            compile_text(text)
        render_text(caught.value.diagnostics)
        json.dumps([as_json(each) for each in caught.value.diagnostics])
        found.update(each.code.name for each in caught.value.diagnostics)

    assert calls_of(compile_and_render) < MOST_CALLS
    return found


@pytest.mark.quick(6)
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "MGS122"),
        ("\n\n   \n# only a comment", "MGS122"),
        ("x" * (1 << 20) + "yz", "MGS130"),
        ("a b c d e\n" * 20_000, "MGS131"),
        ("let a = 1 + " * 20_000, "MGS131"),
        ("let a = " + "(" * 1000, "MGS132"),
        ("let a = " + "(" * 1000 + "1" + ")" * 1000, "MGS132"),
        ("system s " + "{ a " * 1000, "MGS132"),
        ("let a = b" + ".c" * 1000, "MGS132"),
        ("let a = b" + "()" * 1000, "MGS132"),
        ("let a = 1e999999999", "MGS133"),
        ("let a = " + "9" * 1000, "MGS133"),
        ("let a = " + " * ".join(["9" * 40] * 2000), "MGS135"),
        ("let a = " + " / ".join(["9" * 40] * 2000), "MGS135"),
        ("{" * 63, "MGS101"),
        ("}" * 5000, "MGS102"),
        ('"' * 999, "MGS105"),
        ("\x01\x02\x1b[31m", "MGS106"),
        ("\N{FULLWIDTH DIGIT ONE}\N{NO-BREAK SPACE}\N{RIGHT-TO-LEFT OVERRIDE}", "MGS106"),
        ("let " * 5000, "MGS107"),
        ("- " * 5000, "MGS101"),
        ("param p = 1 in 1..99999999999 step 1", "MGS305"),
        ("param p = 1 in 1..2e30 x2\nlet q = r", "MGS203"),
    ],
)
def test_hostile_text(text: str, code: str) -> None:
    assert code in codes_of(text)


@pytest.mark.parametrize("text", ['{"schema": "magus-plan/2"}', "[1, 2]"])
def test_json_is_told_where_it_is_read(text: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_text(text)
    assert "as a plan by --schedule FILE" in caught.value.first.hint


@pytest.mark.slow
def test_long_chains_of_definitions() -> None:
    forwards = "let a0 = 1\n" + "".join(f"let a{n} = a{n - 1} + 1\n" for n in range(1, 2000))
    backwards = "".join(f"let a{n} = a{n + 1} + 1\n" for n in range(2000)) + "let a2000 = 1\n"
    assert compile_text(forwards).workloads == ()
    assert "MGS132" in codes_of(backwards)


def test_deepest_legal_nesting_of_every_kind() -> None:
    expression = "1"
    for _ in range(32):
        expression = f"-(1 + 2 * min({expression}, 3) / 4)"
    assert compile_text(f"let a = {expression}\n").workloads == ()


@pytest.mark.parametrize(
    ("opening", "closing"),
    [("-(1 + 2 * ", ")"), ("-f(1 + 2 * ", ")"), ("[1, 2 * ", " + 3]"), ("a[1 + 2 * ", ":3]"), ("-(1 - a[f(b=", ")])")],
)
def test_deep_nesting_prints(opening: str, closing: str) -> None:
    depth = 64 // (opening.count("(") + opening.count("["))
    text = f"let a = {opening * depth}1{closing * depth}\n"
    formatted = format_text(text)
    assert format_text(formatted) == formatted
    with pytest.raises(CompileError):
        compile_text(text)


def test_deeply_nested_blocks_print() -> None:
    text = "gpu g " + "{ a " * 64 + "}" * 64
    formatted = format_text(text)
    assert format_text(formatted) == formatted


def test_many_errors_are_cut_in_the_text() -> None:
    text = "".join(f"let a{n} = b{n}\n" for n in range(200))
    with pytest.raises(CompileError) as caught:
        compile_text(text)
    shown = render_text(caught.value.diagnostics)
    assert len(caught.value.diagnostics) == 200
    assert shown.count("error:") == 50
    assert shown.endswith("and 150 more")


def test_many_syntax_errors_soon() -> None:
    assert codes_of("workload w on s {\n" + "x = = 3\n" * 5000 + "}\n") == {"MGS107"}


def test_a_long_line_is_cut() -> None:
    with pytest.raises(CompileError) as caught:
        compile_text("let a = " + "1 + " * 5000 + "b")
    assert max(map(len, render_text(caught.value.diagnostics).split("\n"))) < 200


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    binary, latin, locked = tmp_path / "binary.mgs", tmp_path / "latin.mgs", tmp_path / "large.mgs"
    binary.write_bytes(b"mgs 1\n\0\0")
    latin.write_bytes(b"# caf\xe9\n")
    locked.write_bytes(b"#" * ((1 << 20) + 1))
    for path, code in (
        (tmp_path / "absent.mgs", "MGS120"),
        (tmp_path, "MGS120"),
        (Path("a\0b.mgs"), "MGS120"),
        (tmp_path / ("n" * 300), "MGS120"),
        (binary, "MGS121"),
        (latin, "MGS121"),
        (locked, "MGS130"),
    ):
        with pytest.raises(CompileError) as caught:
            compile_file(path)
        assert [found.code.name for found in caught.value.diagnostics] == [code]


def test_a_device_file_is_not_read() -> None:
    with pytest.raises(CompileError):
        compile_file("/dev/zero")


def test_an_empty_name_is_the_folder_here() -> None:
    with pytest.raises(CompileError) as caught:
        compile_file("")
    assert caught.value.first.message == "'.' is a folder, not a file"
    assert caught.value.first.hint == "an empty name stands for it too"


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_line_ends_as_on_any_machine(tmp_path: Path, line_end: str) -> None:
    path = tmp_path / "old.mgs"
    path.write_bytes(line_end.join(["mgs 1", "let a = 2 # two", "let b = a", "let c = d", ""]).encode())
    with pytest.raises(CompileError) as caught:
        compile_file(path)
    found = caught.value.first
    assert (found.code.name, found.span.location.line, found.span.location.column) == ("MGS203", 4, 9)
    assert found.span.source.line(4) == "let c = d"


def test_windows_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "windows.mgs"
    path.write_bytes(b"\xef\xbb\xbfmgs 1\r\nlet a = b\r\n")
    with pytest.raises(CompileError) as caught:
        compile_file(path)
    found = caught.value.diagnostics[0]
    assert (found.span.location.line, found.span.location.column) == (2, 9)
    assert "\r" not in render_text(caught.value.diagnostics)
