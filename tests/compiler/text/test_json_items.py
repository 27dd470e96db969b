"""JSON values with their paths: what is asked for is given, and what is not there is told with where it should be."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.codes import Code
from magus.compiler.text.diagnostics import Report, Source, Span, Stopped
from magus.compiler.text.json_forms import MAX_NAME, Item, JsonPlace, read_json
from tests.helpers.marks import examples


def item(text: str) -> Item:
    return read_json(text, JsonPlace("f.json", Span(Source("a.mgs", ""), 0, 0), Report()))


def reported(found: Item, read: Callable[[Item], object]) -> tuple[Code, str, str]:
    with pytest.raises(Stopped):
        read(found)
    (last,) = found.origin.report.diagnostics
    return last.code, last.message, last.hint


def test_paths_go_through_objects_and_lists() -> None:
    inner = item('{"a": [{"b": 1}, {"c": {"d": "x"}}]}').entries(("a",))["a"].items(2)[1].members()["c"].members()["d"]

    assert (inner.path, inner.text()) == ("a[1].c.d", "x")


def test_what_is_requested_for_is_given() -> None:
    found = item('{"n": 3, "t": "a", "f": true, "w": "put", "l": [1, 2]}').entries(("n", "t", "f", "w"), ("l", "m"))

    assert (found["n"].number(3, 3), found["t"].name(), found["f"].flag(), found["w"].word(("put",))) == (
        3,
        "a",
        True,
        "put",
    )
    assert [each.number(1, 2) for each in found["l"].items(2)] == [1, 2]
    assert "m" not in found


@pytest.mark.parametrize(
    ("text", "read", "code", "message"),
    [
        ("3", lambda found: found.entries(()), Code.MGS137, "an object is expected here, got a whole number"),
        ("{}", lambda found: found.entries(("a",)), Code.MGS137, "'a' is missing"),
        ('{"b": 1}', lambda found: found.entries((), ("a",)), Code.MGS137, "there is no key 'b' here"),
        ("true", lambda found: found.number(0, 1), Code.MGS137, "a whole number is expected here, got true or false"),
        ("1", lambda found: found.flag(), Code.MGS137, "true or false is expected here, got a whole number"),
        ("1.0", lambda found: found.number(0, 1), Code.MGS137, "a whole number is expected here, got a number"),
        ("7", lambda found: found.number(0, 6), Code.MGS307, "a number from 0 to 6 is expected here, got 7"),
        ("[1, 2]", lambda found: found.items(1), Code.MGS137, "a list of at most 1 is expected here, got 2"),
        ('"put"', lambda found: found.word(("get",)), Code.MGS137, "unknown word 'put'"),
        ('"a b"', lambda found: found.name(), Code.MGS137, "'a b' is not a name"),
        ('"é"', lambda found: found.name(), Code.MGS137, "'é' is not a name"),
    ],
)
def test_anything_else_is_reported(text: str, read: Callable[[Item], object], code: Code, message: str) -> None:
    assert reported(item(text), read)[:2] == (code, f"f.json: {message}")


def test_hints_know_words_that_are_near() -> None:
    assert reported(item('{"nmae": 1}'), lambda found: found.entries((), ("name",)))[2] == "did you mean 'name'?"
    assert reported(item('"ptu"'), lambda found: found.word(("put", "get")))[2] == "did you mean 'put'?"


def test_a_long_text_is_refused_and_not_repeated() -> None:
    code, message, _ = reported(item(f'"{"a" * (MAX_NAME + 1)}"'), Item.text)

    assert code is Code.MGS137 and len(message) < MAX_NAME


@examples(40, deep=1000)
@given(st.text(max_size=40))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    report = Report()
    with report.attempt():
        read_json(text, JsonPlace("f.json", Span(Source("a.mgs", ""), 0, 0), report))
        assert not report.has_errors
        return
    assert report.has_errors


@pytest.mark.parametrize(("text", "value"), [("2", 2.0), ("2.5", 2.5), ("-1e0", -1.0)])
def test_decimals(text: str, value: float) -> None:
    assert item(text).decimal(-1, 3) == value


@pytest.mark.parametrize("text", ["true", '"2"', "null", "3.5", "-2", "1e999"])
def test_what_is_no_decimal(text: str) -> None:
    with pytest.raises(Stopped):
        item(text).decimal(-1, 3)


def test_errors_of_form_have_the_code_of_the_place() -> None:
    report = Report()
    with report.attempt():
        read_json("[", JsonPlace("f.json", Span(Source("a.mgs", ""), 0, 0), report, Code.MGS609))

    assert [each.code for each in report.diagnostics] == [Code.MGS609]
