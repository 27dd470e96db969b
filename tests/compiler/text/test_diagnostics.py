import subprocess
import sys

import pytest

import magus.compiler
from magus.compiler import CompileError, compile_text
from magus.compiler.codes import Code
from magus.compiler.text.diagnostics import Diagnostic, Report, Source, Span, as_json, did_you_mean, render_text

SOURCE = Source("a.mgs", "let a = 64 GBps\n\tlet b\n")


def test_text() -> None:
    found = Diagnostic(Code.MGS302, "unknown unit 'GBps'", Span(SOURCE, 11, 15), "did you mean GB/s?")
    assert render_text([found]).split("\n") == [
        "a.mgs:1:12: MGS302 error: unknown unit 'GBps'",
        "  let a = 64 GBps",
        "             ^^^^",
        "  help: did you mean GB/s?",
    ]
    assert "\x1b[31m" in render_text([found], color=True)


def test_tabs_and_control_characters_do_not_move_the_carets() -> None:
    found = Diagnostic(Code.MGS107, "odd \x1b[2J", Span(SOURCE, 21, 22))
    shown = render_text([found])
    assert "\x1b" not in shown and "\t" not in shown
    assert shown.split("\n")[2].index("^") == 2 + 5


def test_json() -> None:
    found = Diagnostic(Code.MGS302, "unknown unit", Span(SOURCE, 11, 15), "GB/s")
    assert [as_json(found)] == [
        {
            "code": "MGS302",
            "severity": "error",
            "message": "unknown unit",
            "hint": "GB/s",
            "file": "a.mgs",
            "line": 1,
            "column": 12,
            "end_line": 1,
            "end_column": 16,
        }
    ]


def test_the_same_finding_is_reported_once() -> None:
    report = Report()
    for _ in range(2):
        report.error(Code.MGS203, "unknown", Span(SOURCE, 0, 3))
    assert len(report.diagnostics) == 1 and report.has_errors


@pytest.mark.parametrize(
    ("word", "guess"), [("gem", "did you mean 'gemm'?"), ("GEMM", "did you mean 'gemm'?"), ("zzz", "")]
)
def test_did_you_mean(word: str, guess: str) -> None:
    assert did_you_mean(word, ("gemm", "all_gather")) == guess


def test_a_compile_error_shows_everything() -> None:
    with pytest.raises(CompileError) as caught:
        compile_text("let a = b\nlet c = d\n")
    assert str(caught.value) == render_text(caught.value.diagnostics)
    assert [found.span.location.line for found in caught.value.diagnostics] == [1, 2]


def test_codes_have_one_meaning_each() -> None:
    assert len({code.value for code in Code}) == len(list(Code))


def test_the_face_is_complete_and_lazy() -> None:
    for name in magus.compiler.__all__:
        assert getattr(magus.compiler, name) is not None
    with pytest.raises(AttributeError):
        _ = magus.compiler.nothing
    program = "import sys, magus.compiler.ir.scenario; sys.exit('lark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
