"""Answers as tables: frames have what the JSON says, a missing library says how to get it, HTML is safe."""

import sys
from typing import Any

import pytest

from magus.compiler.ir import JsonObject
from magus.compiler.text.records import MAX_SHOWN, Tabular


class Measured(Tabular):
    """Two columns, one of them spread from an object."""

    ROWS = "points"

    def __init__(self, count: int, name: str = "<ring>") -> None:
        self.count, self.name = count, name

    def document(self) -> JsonObject:
        """Rows whose second value is missing at first."""
        rows = [{"settings": {"m": str(m)}, "us": m / 3 if m else None, "on": self.name} for m in range(self.count)]
        return {"points": rows}

    @property
    def summary(self) -> str:
        """A line with a character of control."""
        return "a & b\x1b[2J"


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_has_the_rows(library: str) -> None:
    pytest.importorskip(library)
    frame: Any = getattr(Measured(3), f"to_{library}")()
    assert list(frame.columns) == ["settings.m", "us", "on"] and len(frame) == 3
    assert list(frame["us"])[1:] == [1 / 3, 2 / 3]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_missing_library_says_how_to_get_it(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=rf"{library} is not installed.*magus-gpu\[{library}\]"):
        getattr(Measured(1), f"to_{library}")()


def test_html_is_escaped_and_short() -> None:
    html = Measured(MAX_SHOWN + 5)._repr_html_()
    assert "&lt;ring&gt;" in html and "<ring>" not in html and "a &amp; b" in html and "\x1b" not in html
    assert html.count("<tr>") == MAX_SHOWN + 1 and "5 more rows" in html


@pytest.mark.parametrize(
    ("us", "shown"), [(1 / 3, "0.3333"), (999.96, "1000"), (1204.7554494260444, "1204.8"), (12, "12")]
)
def test_html_has_no_more_digits_than_times_have(us: float, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Measured, "document", lambda self: {"points": [{"us": us}]})
    assert f"<td>{shown}</td>" in Measured(1)._repr_html_()


def test_a_column_of_words_that_repeats_another_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"schedule": "ring", "name": "ring", "us": us, "us_again": us} for us in (1.5, 2.5)]
    monkeypatch.setattr(Measured, "document", lambda self: {"points": rows})

    html = Measured(2)._repr_html_()

    assert html.count("ring") == 2 and html.count("<td>1.5</td>") == 2


def test_a_line_is_printable() -> None:
    assert repr(Measured(1)).startswith("<Measured: a & b") and "\x1b" not in repr(Measured(1))
