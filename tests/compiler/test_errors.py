"""Every file in tests/errors is wrong in the way, and at the place, that its first line says.

No message ends with a full stop.
"""

import re
from pathlib import Path

import pytest

from magus.compiler import CompileError, compile_file, compile_text
from magus.compiler.codes import Code
from magus.compiler.text.diagnostics import Severity
from tests.helpers.paths import ERRORS as FOLDER

FILES = sorted(FOLDER.glob("*.mgs"))
EXPECTED = re.compile(r"(MGS\d+) @ (\d+):(\d+)")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_error_file(path: Path) -> None:
    first_line = path.read_text(encoding="utf-8").split("\n", 1)[0]
    expected = [(code, int(line), int(column)) for code, line, column in EXPECTED.findall(first_line)]
    assert expected, "the first line says what is expected: # expect MGS302 @ 4:21"
    with pytest.raises(CompileError) as caught:
        compile_file(path)
    places = [(each.code.name, each.span.location) for each in caught.value.diagnostics]
    found = [(code, location.line, location.column) for code, location in places]
    assert found == expected, str(caught.value)
    for error in caught.value.diagnostics:
        assert error.severity is Severity.ERROR
        assert error.message and not error.message.endswith(".")
        assert error.span.source.path == str(path)


# Their files would be binary, huge or many; or they are warnings.
# See test_hostile.py, test_load.py, test_models.py, test_replay_file.py, test_resolve.py, test_said_for_nothing.py.
ELSEWHERE = {
    "MGS121",
    "MGS130",
    "MGS131",
    "MGS134",
    "MGS136",
    "MGS138",
    "MGS212",
    "MGS213",
    "MGS214",
    "MGS215",
    "MGS313",
    "MGS350",
    "MGS351",
}
# Other codes from 4xx on are found when a schedule is built for a scenario, not in the text.
OF_THE_TEXT = {
    "MGS401",
    "MGS403",
    "MGS404",
    "MGS405",
    "MGS420",
    "MGS421",
    "MGS502",
    "MGS504",
    "MGS505",
    "MGS506",
    "MGS520",
    "MGS407",
    "MGS408",
    "MGS409",
    "MGS410",
    "MGS513",
    "MGS515",
}


def test_every_code_has_an_error_file() -> None:
    first_lines = [path.read_text(encoding="utf-8").split("\n", 1)[0] for path in FILES]
    covered = {code for line in first_lines for code, _, _ in EXPECTED.findall(line)}
    found_in_text = {code.name for code in Code if code.name < "MGS400"} | OF_THE_TEXT
    assert found_in_text - covered == ELSEWHERE


@pytest.mark.parametrize(
    ("name", "word"), [("property_behind_a_property", "achieved"), ("definition_behind_a_definition", "y")]
)
def test_what_begins_another_statement_is_said_to(name: str, word: str) -> None:
    with pytest.raises(CompileError, match=f"if another statement begins there, put ';' before '{word}'"):
        compile_file(FOLDER / f"{name}.mgs")


@pytest.mark.parametrize("text", ["let a = b = 2", "let a b = 2", "let a = 1 + b = 2"])
def test_what_is_no_statement_is_not(text: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_text(f"let b = 1\n{text}\n")

    assert "put ';' before" not in str(caught.value)
