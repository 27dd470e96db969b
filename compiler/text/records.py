"""Answers in Python as tables: a line for the prompt, HTML for a notebook, dictionaries and frames (pandas, polars).

All follow from the JSON of the answer.
"""

from collections.abc import Iterator, Mapping
from html import escape
from importlib import import_module
from typing import Any, ClassVar

from ..ir import JsonObject
from .diagnostics import printable

MAX_SHOWN = 20
"""Rows of a table in a notebook at most, about a screen; frames have all."""


class Tabular:
    """An answer whose ``document`` has a list of rows under ``ROWS``, and that says itself in a ``summary``."""

    __slots__ = ()
    ROWS: ClassVar[str] = ""

    def document(self) -> JsonObject:
        """Return the answer as JSON."""
        raise NotImplementedError

    @property
    def summary(self) -> str:
        """The answer in a line."""
        raise NotImplementedError

    def to_dict(self) -> JsonObject:
        """Return the answer as the JSON that the command prints with ``--json``."""
        return self.document()

    def rows(self) -> list[JsonObject]:
        """Return the rows of the table; an object in a row is spread, so that its keys are ``settings.m``."""
        return [dict(_flat(row)) for row in self.document()[self.ROWS]]

    def to_pandas(self) -> Any:
        """Return the rows as a ``pandas.DataFrame``.

        Raises
        ------
        ImportError
            If pandas is not installed, with how to install it.
        """
        return _module("pandas").DataFrame(self.rows())

    def to_polars(self) -> Any:
        """Return the rows as a ``polars.DataFrame``.

        Raises
        ------
        ImportError
            If polars is not installed, with how to install it.
        """
        return _module("polars").from_dicts(self.rows(), infer_schema_length=None)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {printable(self.summary)}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the line, and the columns that say something; repeated words are left out."""
        rows = self.rows()
        shown = rows[:MAX_SHOWN]
        names = [name for name in dict.fromkeys(key for row in shown for key in row) if _says(shown, name)]
        first = {_words(shown, name): name for name in reversed(names)}
        names = [name for name in names if not _words(shown, name) or first[_words(shown, name)] == name]
        head = "".join(f'<th style="text-align: left">{escape(name)}</th>' for name in names)
        body = "".join(f"<tr>{''.join(_cell(row.get(name)) for name in names)}</tr>" for row in shown)
        more = f"<p>and {len(rows) - MAX_SHOWN:,} more rows</p>" if len(rows) > MAX_SHOWN else ""
        line = f"<p>{escape(printable(self.summary))}</p>"
        return f"{line}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _flat(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield before + key, value


def _says(rows: list[JsonObject], name: str) -> bool:
    """Whether a column has a value somewhere, and values that fit into a cell."""
    values = [row.get(name) for row in rows]
    return any(value is not None for value in values) and not any(isinstance(value, list) for value in values)


def _words(rows: list[JsonObject], name: str) -> tuple[str, ...]:
    """The values of a column of words; of another none."""
    words = tuple(value for row in rows if isinstance(value := row.get(name), str))
    return words if len(words) == len(rows) else ()


def _cell(value: Any) -> str:
    """The cell of a value: numbers stand to the right, words to the left."""
    if isinstance(value, float):
        return f"<td>{value:.4g}</td>" if abs(value) < 1000 else f"<td>{value:.1f}</td>"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"<td>{value}</td>"
    return f'<td style="text-align: left">{"" if value is None else escape(printable(str(value)))}</td>'


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"{name} is not installed; install it with: pip install 'magus-gpu[{name}]'") from error
