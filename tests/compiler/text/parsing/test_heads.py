"""Heads of declarations that are not complete or go on too far: what is wrong with them, and what to write."""

import pytest

from magus.compiler.codes import Code
from magus.compiler.text.diagnostics import Report, Source
from magus.compiler.text.parsing.parse import parse_file

BEHIND_AS = "behind 'as' stands a name, without quotes"
ONE = "one library is used at a time"


@pytest.mark.parametrize(
    ("behind", "message", "written"),
    [
        (" as", BEHIND_AS, " as lib"),
        (' as "nv"', BEHIND_AS, " as nv"),
        (" as 3", BEHIND_AS, " as lib"),
        (" nv", "'nv' cannot stand behind the library", " as nv"),
        (" like nv", "'like' cannot stand behind the library", " as nv"),
        (" as nv.H100", "'.' cannot stand behind the library", " as nv"),
        (" as nv { }", "'{' cannot stand behind the library", " as nv"),
        (" as nv as b", "'as' cannot stand behind the library", " as nv"),
        (', "amd/mi300x"', ONE, ", and another library on a line of its own"),
        (" as nv, b", ONE, " as nv, and another library on a line of its own"),
    ],
)
def test_what_stands_behind_a_library_is_told_with_what_may(behind: str, message: str, written: str) -> None:
    report = Report()
    parse_file(Source("a.mgs", f'use "nvidia/h100"{behind}\nlet K = 1\n'), report)

    (found,) = report.diagnostics
    assert (found.code, found.message, found.hint) == (Code.MGS104, message, f'write: use "nvidia/h100"{written}')
