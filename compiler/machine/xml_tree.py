"""Parse untrusted XML into a small tree, within limits: no document types, so no entities, and nothing outside."""

from dataclasses import dataclass, field
from xml.parsers import expat

from ..codes import Code
from ..text.diagnostics import Report, Source, Span, Stopped

MAX_DEPTH = 64
MAX_ELEMENTS = 100_000
MAX_ATTRIBUTES = 64


@dataclass(frozen=True, slots=True)
class Element:
    """An element: its tag, attributes and children, and the offset of its first byte in the text as UTF-8."""

    tag: str
    attributes: dict[str, str]
    offset: int
    children: "list[Element]" = field(default_factory=list)

    def get(self, name: str) -> str:
        """Return an attribute without spaces around it; empty if there is none."""
        return self.attributes.get(name, "").strip()

    def of_tag(self, *tags: str) -> "list[Element]":
        """Return the children with one of the tags."""
        return [child for child in self.children if child.tag in tags]


class XmlText:
    """The tree of an XML text, and the places of its elements."""

    def __init__(self, source: Source, report: Report) -> None:
        self._source, self._report = source, report
        self._data = source.text.encode("utf-8", "surrogatepass")
        self._open: list[Element] = []
        self._num_elements = 0
        self._root: Element | None = None
        self._parser = expat.ParserCreate("utf-8")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.StartDoctypeDeclHandler = self._refuse_doctype

    def root(self) -> Element:
        """Parse the text; errors are reported at their place."""
        try:
            self._parser.Parse(self._data, True)
        except expat.ExpatError as error:
            if (
                expat.errors.codes[expat.errors.XML_ERROR_JUNK_AFTER_DOC_ELEMENT] == error.code
                and self._root is not None
            ):
                message = f"the file goes on after <{self._root.tag[:32]}>: two files in one, as of two hosts"
                raise self._fail_here(Code.MGS612, message, "import one at a time") from None
            raise self._fail_here(Code.MGS602, f"no XML: {expat.ErrorString(error.code)}") from None
        assert self._root is not None, "XML that parses has a root"
        return self._root

    def span(self, element: Element) -> Span:
        """Return the place of the tag of an element."""
        start = self._characters(element.offset)
        return Span(self._source, start, start + 1 + len(element.tag))

    def fail(self, code: Code, message: str, element: Element, hint: str = "") -> Stopped:
        """Report an error at an element."""
        return self._report.fail(code, message, self.span(element), hint)

    def number(self, element: Element, name: str, usual: int, high: int) -> int:
        """Return an attribute that is a whole number from -1 to ``high``; ``usual`` if there is none."""
        text = element.get(name)
        if not text:
            return usual
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 9 and -1 <= int(text) <= high):
            message = f'{name}="{text[:32]}" in {element.tag}: a whole number up to {high:,} is expected here'
            raise self.fail(Code.MGS606, message, element)
        return int(text)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._num_elements += 1
        if len(self._open) >= MAX_DEPTH:
            raise self._fail_here(Code.MGS132, f"elements are nested deeper than {MAX_DEPTH}")
        if self._num_elements > MAX_ELEMENTS or len(attributes) > MAX_ATTRIBUTES:
            raise self._fail_here(
                Code.MGS131, f"more than {MAX_ELEMENTS:,} elements, or {MAX_ATTRIBUTES} attributes in one"
            )
        element = Element(tag, attributes, self._parser.CurrentByteIndex)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = element
        self._open.append(element)

    def _end(self, tag: str) -> None:
        self._open.pop()

    def _refuse_doctype(self, *_: object) -> None:
        raise self._fail_here(Code.MGS602, "a document type is not read: dumps of machines have none, nor entities")

    def _fail_here(self, code: Code, message: str, hint: str = "") -> Stopped:
        at = min(self._characters(max(0, self._parser.CurrentByteIndex)), max(0, len(self._source.text) - 1))
        return self._report.fail(code, message, Span(self._source, at, at + 1), hint)

    def _characters(self, num_bytes: int) -> int:
        if len(self._data) == len(self._source.text):
            return num_bytes
        return len(self._data[:num_bytes].decode("utf-8", "replace"))
