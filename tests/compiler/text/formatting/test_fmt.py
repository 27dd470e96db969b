"""The canonical form: golden files, and comments that stay."""

import random
from pathlib import Path

import pytest

from magus.compiler import CompileError, format_text
from magus.compiler.text import syntax as ast
from magus.compiler.text.diagnostics import Report, Source
from magus.compiler.text.parsing.parse import parse_file
from tests.helpers.marks import thinned
from tests.helpers.paths import ROOT

SHIPPED = sorted([*ROOT.glob("examples/*.mgs"), *ROOT.glob("compiler/library/*/*.mgs")])
GOLDEN = sorted((ROOT / "tests" / "golden").glob("*.mgs"))


def parse(text: str) -> ast.File:
    report = Report()
    with report.attempt():
        file = parse_file(Source("a.mgs", text), report)
        assert not report.has_errors, report.diagnostics
        return file
    raise AssertionError(CompileError(report.diagnostics))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_files_are_canonical(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert format_text(text) == text


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    formatted = format_text(text)
    assert formatted == path.with_suffix(".formatted").read_text(encoding="utf-8")
    assert format_text(formatted) == formatted
    assert parse(formatted) == parse(text)


@pytest.mark.quick(30)
@pytest.mark.parametrize("seed", thinned(range(30), 10))
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_no_comment_is_lost_wherever_it_stands(path: Path, seed: int) -> None:
    chance = random.Random(seed)
    lines = path.read_text(encoding="utf-8").split("\n")
    for number in range(20):
        at = chance.randrange(len(lines))
        if chance.random() < 0.5:
            lines.insert(at, f"{' ' * chance.randrange(6)}# own {number}")
        elif "#" not in lines[at]:
            lines[at] += f" # end {number}"
        if chance.random() < 0.3:
            lines.insert(chance.randrange(len(lines)), "")
    text = "\n".join(lines)
    formatted = format_text(text)
    assert format_text(formatted) == formatted
    before, after = parse(text), parse(formatted)
    assert after == before
    assert sorted(comment.text for comment in after.comments) == sorted(comment.text for comment in before.comments)


def test_a_text_that_does_not_parse_is_not_formatted() -> None:
    with pytest.raises(CompileError):
        format_text("let a = (1\n")


def test_a_text_with_wrong_meaning_is_formatted() -> None:
    assert format_text("let a=b*2 # why\n") == "let a = b * 2  # why\n"


def test_schedules_of_batches_are_aligned() -> None:
    text = "schedule s for layer {\n  qkv[0]=serial() # first\n  u = serial()\n  y[1] = serial()\n  batches 2\n}\n"
    formatted = format_text(text)

    assert formatted == (
        "schedule s for layer {\n  qkv[0] = serial()  # first\n  u      = serial()\n"
        "  y[1]   = serial()\n  batches 2\n}\n"
    )
    assert parse(formatted) == parse(text)


def test_only_a_schedule_says_something_of_one_batch() -> None:
    for text in ("workload w on s { x[0] = norm(y) }\n", "schedule s for w { f(x) = serial() }\n"):
        with pytest.raises(CompileError, match=r"MGS107.*'=' cannot stand here"):
            format_text(text)


def test_a_long_list_breaks_at_its_own_commas() -> None:
    trees = ", ".join(f"[{root}, 1, {', '.join(str(root) for _ in range(8))}]" for root in range(8))
    text = f"schedule one for w = forest(chunks=8, engine=dma(8), trees=[{trees}])\n"
    printed = format_text(text)

    assert max(map(len, printed.splitlines())) <= 120 and printed.count("\n") > 3
    assert "".join(printed.split()) == "".join(text.split()) and format_text(printed) == printed
