"""Every file in tests/errors is wrong in the way, and at the place, that its first line says."""

import re
from pathlib import Path

import pytest

from magus.compiler import CompileError, compile_file
from magus.compiler.codes import Code
from magus.compiler.diagnostics import Severity

FOLDER = Path(__file__).parents[1] / "errors"
FILES = sorted(FOLDER.glob("*.mgs"))
EXPECTED = re.compile(r"(MGS\d+) @ (\d+):(\d+)")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_error_file(path: Path) -> None:
    first_line = path.read_text(encoding="utf-8").split("\n", 1)[0]
    expected = [(code, int(line), int(column)) for code, line, column in EXPECTED.findall(first_line)]
    assert expected, "the first line says what is expected: # expect MGS302 @ 4:21"
    with pytest.raises(CompileError) as caught:
        compile_file(path)
    found = [(each.code.name, *_place(each.span)) for each in caught.value.diagnostics]
    assert found == expected, str(caught.value)


def _place(span: object) -> tuple[int, int]:
    location = span.location  # type: ignore[attr-defined]
    return location.line, location.column


def test_every_error_has_a_message_that_ends_without_a_full_stop() -> None:
    for path in FILES:
        with pytest.raises(CompileError) as caught:
            compile_file(path)
        for found in caught.value.diagnostics:
            assert found.severity is Severity.ERROR
            assert found.message and not found.message.endswith(".")
            assert found.span.source.path == str(path)


# Codes whose files would be binary, huge, many, or are reported by later stages.
ELSEWHERE = {"MGS121", "MGS130", "MGS131", "MGS134", "MGS212", "MGS313"}


def test_every_code_has_an_error_file() -> None:
    covered = {
        code for path in FILES for code, _, _ in EXPECTED.findall(path.read_text(encoding="utf-8").split("\n", 1)[0])
    }
    mine = {code.name for code in Code} - ELSEWHERE
    assert mine - covered == set() or mine - covered <= LATER_STAGES


# A plan's coverage and its waits are checked where schedules are built, with tests of their own.
LATER_STAGES = {"MGS501", "MGS503", "MGS507", "MGS508", "MGS509", "MGS510"}
