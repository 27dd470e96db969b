"""Values of a file that can be changed on screen: params, and numbers of its devices. No Textual."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from ....compiler.changed import Changes
from ....compiler.ir import Settings, System
from ....compiler.resolve.values.device_numbers import StatedNumber
from ....compiler.resolve.values.params import Param
from ....compiler.text.units import NUMBER, Quantity, read_text

STEP = Fraction(5, 100)
"""A step of a number of the hardware, of its value in the file: about what measurements of one GPU differ by."""


@dataclass(frozen=True, slots=True)
class ValueRow:
    """One value that can be changed; ``before`` is that of the file.

    ``origin`` says where the number comes from, ``domain`` what values it may take, and ``choices`` are those that a
    domain lists. ``quantity`` is what ``value`` amounts to, and ``base`` what steps in shares are shares of.
    """

    name: str
    value: str
    before: str
    origin: str
    source: str
    domain: str
    is_param: bool
    changed: bool
    quantity: Quantity
    base: Quantity
    choices: tuple[str, ...] = ()

    def stepped(self, steps: int, *, doubling: bool = False) -> str:
        """Return the text of the value ``steps`` further: the next of the domain, 5 % more, or with ``doubling`` twice.

        The value itself where there is no next one.
        """
        if self.choices:
            return _next_choice(self.choices, self.value, self.quantity, steps)
        now, base = self.quantity, self.base.amount
        if now.amount <= 0 or base <= 0:
            return self.value
        if doubling or self.is_param:
            amount = now.amount * Fraction(2) ** steps
            amount = Fraction(max(1, int(amount))) if _is_count(now) else amount
        elif _is_count(now):
            amount = max(Fraction(1), now.amount + steps)
        else:
            amount = base * (1 + STEP * (round((now.amount / base - 1) / STEP) + steps))
        return read_text(Quantity(amount, now.dimension)) if amount > 0 else self.value


def _is_count(quantity: Quantity) -> bool:
    return quantity.dimension == NUMBER and quantity.amount.denominator == 1


def _next_choice(choices: tuple[str, ...], value: str, quantity: Quantity, steps: int) -> str:
    """Return the choice after ``value``; of a value between two choices the nearer one in the direction of the step."""
    if value in choices:
        return choices[min(len(choices) - 1, max(0, choices.index(value) + steps))]
    numbers = [each for each in choices if each.replace(".", "", 1).isdigit()]
    beyond = [each for each in numbers if (Fraction(each) - quantity.amount) * steps > 0]
    return value if not beyond else min(beyond, key=lambda each: abs(Fraction(each) - quantity.amount))


@dataclass(frozen=True, slots=True)
class ValuesOfFile:
    """The values of a file under ``changes``: its ``params`` and ``numbers``, and those ``before`` any change."""

    params: tuple[Param, ...] = ()
    numbers: tuple[StatedNumber, ...] = ()
    before: tuple[StatedNumber, ...] = ()
    changes: Changes = field(default_factory=Changes)

    def rows(self, system: System) -> tuple[ValueRow, ...]:
        """Return what can be changed for ``system``: params, then numbers of links and switches, then of the GPU."""
        return (*map(self._of_param, self.params), *map(self._of_number, self._used(system)))

    def _used(self, system: System) -> Iterator[StatedNumber]:
        fabric, gpu = system.fabric, system.gpu
        switches = [] if fabric.switch is None else [fabric.switch.name]
        for name in dict.fromkeys([*(link.name for link in fabric.links), *switches, gpu.name]):
            yield from (each for each in self.numbers if each.device == name)

    def _of_param(self, param: Param) -> ValueRow:
        changed = param.name in dict(self.changes.params)
        return ValueRow(
            name=param.name,
            value=param.value,
            before=param.default,
            origin="param",
            source="",
            domain=param.domain or "any value",
            is_param=True,
            changed=changed,
            quantity=param.quantity,
            base=param.quantity,
            choices=param.choices,
        )

    def _of_number(self, number: StatedNumber) -> ValueRow:
        base = next((each.value for each in self.before if each.path == number.path), number.value)
        before, text = read_text(base), dict(self.changes.numbers).get(number.path)
        return ValueRow(
            name=number.path,
            value=before if text is None else text,
            before=before,
            origin=number.origin.value,
            source=number.source,
            domain="steps of 1" if _is_count(base) else "steps of 5 %",
            is_param=False,
            changed=text is not None,
            quantity=number.value,
            base=base,
        )


def with_value(changes: Changes, row: ValueRow, text: str) -> Changes:
    """Return ``changes`` with the value of ``row``; the value of the file is no change."""
    kept = changes.params if row.is_param else changes.numbers
    others = tuple(pair for pair in kept if pair[0] != row.name)
    new: Settings = others if text.strip() == row.before else (*others, (row.name, text.strip()))
    return Changes(tuple(new), changes.numbers) if row.is_param else Changes(changes.params, tuple(new))


def changed_words(changes: Changes) -> str:
    """Return the changes in one line, ``M = 4096, xgmi.achieved = 50 GB/s``."""
    return ", ".join(f"{name} = {value}" for name, value in (*changes.params, *changes.numbers))
