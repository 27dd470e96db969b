"""Read the words and values of a statement from left to right, and report the words that cannot stand there."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from ...codes import Code
from ...text import syntax as ast
from ...text.diagnostics import Report, Span, did_you_mean, listing
from ...text.units import looks_like_unit, unit_hint
from ...text.vocabulary import SYNONYMS


def single(values: Sequence[ast.Expression], report: Report, in_call: bool = False) -> ast.Expression:
    """Return the only value; report several values side by side."""
    if len(values) == 1:
        return values[0]
    side_by_side(values[0], values[1], report, in_call)
    raise report.stop()


def side_by_side(left: ast.Expression, right: ast.Expression, report: Report, in_call: bool = False) -> None:
    """Report two values without an operator or comma between them."""
    first, second = left.span.text, right.span.text
    span = left.span.to(right.span)
    match left, right:
        case ast.NumberNode(), ast.Name(text=word) if looks_like_unit(word):
            report.error(Code.MGS302, f"unknown unit '{word}'", right.span, unit_hint(word))
        case ast.Name(text=word), ast.Parens():
            report.error(Code.MGS111, "a call has no space before '('", span, f"{word}{second}")
        case _, ast.Negate(operand=operand):
            hint = f"to subtract, put a space on both sides: {first} - {operand.span.text}"
            report.error(Code.MGS114, f"two values side by side: {first} and {second}", span, hint)
        case _ if in_call:
            report.error(
                Code.MGS112, f"a comma is missing between '{first}' and '{second}'", span, f"{first}, {second}"
            )
        case _:
            begins = isinstance(right, ast.Name) and not isinstance(left, ast.Name)
            hint = f"if another statement begins there, put ';' before '{second}'" if begins else ""
            report.error(Code.MGS114, f"two values side by side: {first} and {second}", span, hint)


def truth(value: ast.Expression, report: Report) -> bool:
    """Return whether ``value`` is ``yes``; report what is neither ``yes`` nor ``no``."""
    if isinstance(value, ast.Name) and value.text in ("yes", "no"):
        return value.text == "yes"
    word = SYNONYMS.get(value.text, "") if isinstance(value, ast.Name) else ""
    raise report.fail(Code.MGS116, "yes or no is expected here", value.span, f"Magus says '{word}'" if word else "")


def head_of(statement: ast.Say) -> ast.Name | None:
    """Return the first word of a statement, None if it begins with something else."""
    first = statement.phrase[0].parts[0]
    if isinstance(first, ast.Compare):
        first = first.left
    return first if isinstance(first, ast.Name) else None


def known_head(statement: ast.Define | ast.Say, known: Iterable[str], owner: str, report: Report) -> str:
    """Return the first word of a statement, which must be one of the properties of ``owner``."""
    known = tuple(known)
    if isinstance(statement, ast.Define):
        if statement.name in known:
            message = f"'=' names a new thing, but {statement.name} is a property of {owner}"
            raise report.fail(Code.MGS202, message, statement.span, "drop the '='")
        raise report.fail(Code.MGS202, f"{owner} defines no names", statement.span, f"it has: {listing(known)}")
    word = head_of(statement)
    if word is None:
        raise report.fail(
            Code.MGS116, f"a statement of {owner} begins with a word", statement.span, f"it has: {listing(known)}"
        )
    if word.text not in known:
        synonym = SYNONYMS.get(word.text)
        guess = f"Magus says '{synonym}';" if synonym in known else did_you_mean(word.text, known)
        hint = f"{guess} {owner} has: {listing(known)}".strip()
        raise report.fail(Code.MGS201, f"{owner} has no property '{word.text[:64]}'", word.span, hint)
    return word.text


def said_in(
    block: ast.BlockNode, known: Collection[str], owner: str, report: Report, several: Collection[str] = ()
) -> Iterator[tuple[str, ast.Say]]:
    """Iterate over the statements of a block with their first words, each of which but ``several`` stands once."""
    seen: set[str] = set()
    for statement in block.statements:
        with report.attempt():
            word = known_head(statement, known, owner, report)
            if word not in several:
                report.once(word, seen, statement.span)
            assert isinstance(statement, ast.Say), "a definition has no head that is known"
            yield word, statement


class Words:
    """A cursor over the words and values of a sentence; commas separate groups."""

    def __init__(self, phrase: ast.Phrase, report: Report) -> None:
        self._report = report
        self._parts = [(idx, part) for idx, group in enumerate(phrase) for part in group.parts]
        self._at = 0
        self._past_comma = 0
        self._span = phrase[0].span.to(phrase[-1].span)
        for group in phrase:
            reject_note(group, report)

    @property
    def span(self) -> Span:
        """The span of the next word; after the last one, that of the whole sentence."""
        return self._parts[self._at][1].span if self._at < len(self._parts) else self._span

    def peek(self) -> ast.Expression | None:
        """Return the next word or value without taking it; None at the end."""
        return self._parts[self._at][1] if self._at < len(self._parts) else None

    @property
    def rest(self) -> list[ast.Expression]:
        """The words and values that are left."""
        return [part for _, part in self._parts[self._at :]]

    def after_comma(self) -> bool:
        """Whether a comma stands before the next word."""
        if not self._past_comma < self._at < len(self._parts):
            return False
        return self._parts[self._at][0] != self._parts[self._at - 1][0]

    def skip_comma(self) -> bool:
        """Skip the comma before the next word; return whether there was one."""
        skipped = self.after_comma()
        if skipped:
            self._past_comma = self._at
        return skipped

    def take(self, expected: str) -> ast.Expression:
        """Return the next value; report ``expected`` as missing if there is none, or if a comma stands before it."""
        if self._at >= len(self._parts) or self.after_comma():
            raise self._report.fail(Code.MGS116, f"{expected} is missing", self.span)
        self._at += 1
        return self._parts[self._at - 1][1]

    def only(self, expected: str) -> ast.Expression:
        """Return the next value, which ends the sentence."""
        value = self.take(expected)
        self.end()
        return value

    def take_list(self, expected: str) -> list[ast.Expression]:
        """Return values separated by commas."""
        values = [self.take(expected)]
        while self.after_comma():
            self._at += 1
            values.append(self._parts[self._at - 1][1])
        return values

    def take_word(self, *known: str) -> str | None:
        """Take the next word if it is one of ``known``."""
        part = self.peek()
        if isinstance(part, ast.Name) and part.text in known and not self.after_comma():
            self._at += 1
            return part.text
        return None

    def need(self, word: str, message: str, hint: str) -> None:
        """Take ``word``, without which ``message`` is reported."""
        if self.take_word(word) is None:
            raise self._report.fail(Code.MGS116, message, self.span, hint)

    def take_name(self, expected: str) -> ast.Name:
        """Take a name."""
        part = self.take(expected)
        if not isinstance(part, ast.Name):
            raise self._report.fail(Code.MGS116, f"{expected} is expected here", part.span)
        return part

    def end(self, known: Iterable[str] = ()) -> None:
        """Check that the sentence ends; ``known`` are the clauses that could follow."""
        part = self.peek()
        if part is None:
            return
        known = tuple(known)
        if self.after_comma():
            message = f"a comma cannot stand before '{part.span.text[:40]}'"
            raise self._report.fail(Code.MGS107, message, part.span, self._comma_hint(part, known))
        before = self._parts[self._at - 1][1] if self._at else part
        if isinstance(before, ast.NumberNode) and isinstance(part, ast.Name) and looks_like_unit(part.text):
            side_by_side(before, part, self._report)
            raise self._report.stop()
        hint = did_you_mean(part.text, known) if isinstance(part, ast.Name) else ""
        if not hint:
            hint = f"what can follow: {listing(known)}" if known else f"put ';' before '{part.span.text[:40]}'"
        code = Code.MGS116 if known else Code.MGS113
        message = f"'{part.span.text[:40]}' cannot stand here" if known else "two statements on one line"
        raise self._report.fail(code, message, part.span, hint)

    @staticmethod
    def _comma_hint(part: ast.Expression, known: tuple[str, ...]) -> str:
        """Return the hint for a comma that cannot stand here."""
        is_clause = isinstance(part, ast.Name) and part.text in known
        return "leave the comma out" if is_clause else "a single value is expected here"


def behind(statement: ast.Define | ast.Say, report: Report) -> Words:
    """Return a cursor over a statement behind its first word."""
    words = Words(statement.phrase, report)
    words.take("a word")
    return words


def one_of(
    known: Collection[str], value: ast.Expression, what: str, report: Report, hint: str = "", code: Code = Code.MGS204
) -> str:
    """Return the word that ``value`` is; one that is not ``known`` is reported as an unknown ``what``."""
    if isinstance(value, ast.Name) and value.text in known:
        return value.text
    text = value.span.text[:64]
    hint = did_you_mean(text, known) or hint or f"{what} is {listing(known)}"
    raise report.fail(code, f"unknown {what} '{text}'", value.span, hint)


def reject_note(group: ast.GroupNode, report: Report) -> None:
    """Report a provenance note on anything but a number of a device."""
    if group.note is not None:
        report.error(Code.MGS116, "a note belongs to a number of a gpu, link or switch", group.note.span)


def head_word(statement: ast.Define | ast.Say) -> str:
    """The word that a statement begins with; empty for a definition, and where there is none."""
    head = head_of(statement) if isinstance(statement, ast.Say) else None
    return head.text if head is not None else ""
