"""Answers in Python as tables: a line for the prompt, HTML for a notebook, dictionaries and frames (pandas, polars).

All follow from the JSON of the answer.
"""

from collections.abc import Iterator, Mapping
from html import escape
from importlib import import_module
from typing import Any, ClassVar

from ..ir import JsonObject
from .diagnostics import printable

MAX_SHOWN = 60
"""Rows of a table in a notebook at most; frames have all."""


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
        """What a notebook shows: the line, and the columns that say something."""
        rows = self.rows()
        shown = rows[:MAX_SHOWN]
        names = [name for name in dict.fromkeys(key for row in shown for key in row) if _says(shown, name)]
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        body = "".join(f"<tr>{''.join(f'<td>{_cell(row.get(name))}</td>' for name in names)}</tr>" for row in shown)
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


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, float):
        return escape(printable(str(value)))
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:.1f}"


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"{name} is not installed; install it with: pip install 'magus-gpu[{name}]'") from error
