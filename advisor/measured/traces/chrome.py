"""A trace as Chrome's JSON, read within limits."""

import json
from collections.abc import Iterator

MAX_VALUE = 16 << 20
MAX_TEXT = 8 << 30
MAX_EVENTS = 20_000_000
_EVENTS = "traceEvents"


class TraceError(ValueError):
    """The text is no trace; the message says why."""


def member(value: object, key: str) -> object:
    """Return a member of an object; None of what is none, or has no such member."""
    return value.get(key) if isinstance(value, dict) else None


class ChromeTrace:
    """The events of a trace whose text comes in pieces; ``members`` has the other members that were read till then.

    ``note`` says why a trace was not read to its end, and is empty if it was.
    """

    def __init__(self, pieces: Iterator[str]) -> None:
        self._pieces = pieces
        self._decoder = json.JSONDecoder()
        self._text, self._at, self._num_read, self._ended = "", 0, 0, False
        self.members: dict[str, object] = {}
        self.note = ""

    def events(self) -> Iterator[dict[str, object]]:
        """Yield each event; a trace that is cut off ends with its last whole one.

        Raises
        ------
        TraceError
            If the text is no JSON with a list of events.
        """
        self._expect("{")
        while (key := self._value()) != _EVENTS:
            self._expect(":")
            value = self._value()
            if isinstance(key, str):
                self.members[key] = value
            if not self._follows(","):
                raise TraceError(f"there is no list {_EVENTS}")
        self._expect(":")
        if not self._follows("["):
            raise TraceError(f"{_EVENTS} is no list")
        try:
            yield from self._list()
        except TraceError as error:
            self.note = f"the trace ends early or is damaged ({error})"

    def _list(self) -> Iterator[dict[str, object]]:
        if self._follows("]"):
            return
        for _ in range(MAX_EVENTS):
            value = self._value()
            if isinstance(value, dict):
                yield value
            if not self._follows(","):
                self._expect("]")
                return
        self.note = f"only the first {MAX_EVENTS:,} events were read"

    def _value(self) -> object:
        """The next value, read in as many pieces as it takes."""
        self._skip_spaces()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._grow():
                    raise TraceError(f"no JSON: {error.msg.removesuffix(' starting at')}") from None
            except RecursionError:
                raise TraceError("brackets are nested too deeply") from None
            except ValueError:
                raise TraceError("a number with too many digits") from None
            else:
                if end < len(self._text) or not self._grow():  # a number might go on
                    self._at = end
                    return value

    def _expect(self, sign: str) -> None:
        if not self._follows(sign):
            raise TraceError(f"'{sign}' is missing")

    def _follows(self, sign: str) -> bool:
        """Whether ``sign`` follows, and if so pass it."""
        self._skip_spaces()
        found = self._text.startswith(sign, self._at)
        self._at += found
        return found

    def _skip_spaces(self) -> None:
        while True:
            while self._at < len(self._text) and self._text[self._at] in " \t\r\n\ufeff":
                self._at += 1
            if self._at < len(self._text):
                return
            self._text, self._at = "", 0
            if not self._grow():
                return

    def _grow(self) -> bool:
        """Read another piece; False at the end of the text."""
        if self._ended:
            return False
        if len(self._text) - self._at > MAX_VALUE:
            raise TraceError("a value is too long")
        piece = next(self._pieces, "")
        self._num_read += len(piece)
        if self._num_read > MAX_TEXT:
            raise TraceError("the text is too long")
        self._ended = not piece
        self._text, self._at = self._text[self._at :] + piece, 0
        return bool(piece)
