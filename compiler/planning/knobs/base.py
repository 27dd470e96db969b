"""A knob of a schedule: its word, its values, and the rules on where they are legal.

A rule is stated once. ``reject_choice`` asks the rules one choice; the solver tabulates each over the values of the
knobs it reads, which gives the clauses of CP-SAT, the generator's mask and the explanation of an empty space.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from enum import Enum
from functools import cached_property
from typing import Any

from ...ir import ExecutionOptions, OpCase, OpChoice, Rejection
from ...templates import BASELINE, BY_NAME, Template
from ...templates.base import TemplateInput
from ..staging import template_input

MAX_COUNT = 1 << 20
Lists = tuple[tuple[int, ...], ...]
# Every choice says its template, chunks and engine; other fields have defaults.
_USUAL: Mapping[str, Any] = {"template": BASELINE.name, "chunks": 0, "engine": None} | {
    each.name: each.default
    for kind in (OpChoice, ExecutionOptions)
    for each in fields(kind)
    if each.default is not MISSING
}


@dataclass(frozen=True)
class ScheduleRequest:
    """A choice that is asked of a scenario, and what follows from both."""

    scenario: OpCase
    choice: OpChoice

    @cached_property
    def template(self) -> Template:
        """The template of the choice."""
        return BY_NAME[self.choice.template]

    @cached_property
    def problem(self) -> TemplateInput:
        """The workload as the template sees it."""
        return template_input(self.scenario, self.choice)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of what is feasible.

    ``knobs`` are the words of the knobs that decide it, and ``reject`` looks at no other. ``sentence`` states the rule
    for all of a space; without one the message of each rejection is a rule of its own.
    """

    knobs: tuple[str, ...]
    reject: Callable[[ScheduleRequest], Rejection | None]
    sentence: Callable[[OpCase], str] | None = None


@dataclass(frozen=True, slots=True)
class WordValues:
    """Values that are the members of an enumeration; the value of a member is its word in the language."""

    kind: type[Enum]

    @property
    def words(self) -> tuple[str, ...]:
        """The words, the usual one first."""
        return words_of(self.kind)

    def value_of(self, word: str) -> Enum:
        """The member that a word stands for."""
        return self.kind(word)


@dataclass(frozen=True, slots=True)
class NameValues:
    """Values that are names of things; the empty name is the usual thing."""

    names: Callable[[], tuple[str, ...]]

    @property
    def words(self) -> tuple[str, ...]:
        """The names."""
        return self.names()

    def value_of(self, word: str) -> str:
        """The name itself."""
        return word


@dataclass(frozen=True, slots=True)
class CountValues:
    """Whole numbers from 1 to ``most``; ``everything`` tries those of ``opened``."""

    most: int = MAX_COUNT
    opened: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SizeValues:
    """A list of lists of sizes.

    ``one`` is what a size is called, ``shorten`` gives the shortest of the lists that say the same, and ``empty`` says
    whether an inner list may be empty.
    """

    one: str
    example: str
    shorten: Callable[[Lists], Lists]
    empty: bool = True


@dataclass(frozen=True, slots=True)
class TileValues:
    """Rows and columns of a tile, ``[128, 256]``; the empty tuple is the usual thing."""


@dataclass(frozen=True, slots=True)
class EngineValues:
    """Who copies: ``dma(7)``, ``sm(8, shared)``."""


Values = WordValues | NameValues | CountValues | SizeValues | TileValues | EngineValues


@dataclass(frozen=True, eq=False)
class Knob:
    """One thing that a choice decides.

    ``word`` is what the language, ``explore`` and JSON call it, and the field of ``OpChoice`` or ``ExecutionOptions``,
    unless that is ``named`` otherwise. Only templates that name an ``optional`` knob have it. ``explored`` knobs are
    words of ``explore``. A knob ``of_transfers`` is idle where nothing moves.
    """

    word: str
    values: Values
    rules: tuple[Rule, ...] = ()
    optional: bool = False
    explored: bool = True
    of_transfers: bool = False
    named: str = ""

    @cached_property
    def field(self) -> str:
        """The field of a choice, or of its options."""
        return self.named or self.word

    @cached_property
    def option(self) -> bool:
        """Whether it says how a schedule is carried out, as a field of ``ExecutionOptions``."""
        return any(each.name == self.field for each in fields(ExecutionOptions))

    @cached_property
    def usual(self) -> Any:
        """The value of a choice that does not say it."""
        return _USUAL[self.field]

    def has(self, template: Template) -> bool:
        """Whether it is a choice in ``template``."""
        return not self.optional or template.has(self.word)

    def of(self, choice: OpChoice) -> Any:
        """Its value in a choice."""
        return getattr(choice.tactics if self.option else choice, self.field)

    @property
    def words(self) -> tuple[str, ...]:
        """The words that its values have in the language, none where they are no words."""
        return self.values.words if isinstance(self.values, WordValues | NameValues) else ()

    def every(self) -> tuple[Any, ...]:
        """All values of a knob whose values are words, and of one that counts those that ``everything`` tries."""
        if isinstance(self.values, CountValues):
            return self.values.opened
        return tuple(self.value_of(word) for word in self.words)

    def value_of(self, said: Any) -> Any:
        """The value for a word, or for the sides of a tile, or a count."""
        if isinstance(self.values, TileValues):
            return tuple(said)
        if isinstance(self.values, CountValues):
            return said
        assert isinstance(self.values, WordValues | NameValues), f"values of {self.word} are no words"
        return self.values.value_of(said)

    def __repr__(self) -> str:
        return f"<{self.word}>"


def value_text(value: Any) -> str:
    """A value in the language."""
    if isinstance(value, tuple):
        return str([list(each) if isinstance(each, tuple) else each for each in value])
    return str(value.value if isinstance(value, Enum) else value)


def words_of(kind: type[Enum]) -> tuple[str, ...]:
    """The words for the members of ``kind``."""
    return tuple(member.value for member in kind)


def with_values(choice: OpChoice, values: Mapping[Knob, Any]) -> OpChoice:
    """``choice`` with other values of some knobs."""
    options = {knob.field: value for knob, value in values.items() if knob.option}
    own = {knob.field: value for knob, value in values.items() if not knob.option}
    return replace(choice, **own, tactics=replace(choice.tactics, **options)) if options else replace(choice, **own)
