"""What a target is: a name, what it is for, its options, and how its file is written; and the table itself as one."""

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from ... import __version__
from ...compiler.codes import Code
from ...compiler.ir import RejectedError, Rejection
from ...compiler.text.diagnostics import did_you_mean, listing
from ..policy.table import PolicyRule, PolicyTable, SweepPoint, policy_text

Options = Mapping[str, str]
"""Values of the options of a target by name, checked and with defaults."""

ContentT = TypeVar("ContentT")

COMMENT_COLUMNS = 110
"""Columns of a comment line. A tuner of NCCL reads 255 characters of a line and takes the rest for a rule."""


class Refused(RejectedError):
    """The format cannot say what the table says; ``rejection`` has the code, the reason and a hint."""


@dataclass(frozen=True, slots=True)
class Option:
    """A word that a target asks for, ``--with NAME=VALUE``; without ``default`` it must be given.

    It is one of ``values``; any text if there are none, such as the path of a file. It may be ``of_one`` op alone.
    """

    name: str
    about: str
    values: tuple[str, ...]
    default: str = ""
    of_one: bool = False

    def settled(self, value: str) -> str:
        """Return ``value`` if it is one of the option's; an empty one is none."""
        hint = f"--with {self.name}=VALUE: {self.about}"
        if not value:
            raise Refused(Rejection(Code.MGS209, f"the option '{self.name}' is missing", hint))
        if self.values and value not in self.values:
            raise Refused(Rejection(Code.MGS311, f"'{value:.64}' is no value of {self.name}", hint))
        return value


@dataclass(frozen=True, slots=True)
class Target(Generic[ContentT]):
    """A file of some runtime, written from a table of rules or from scenarios.

    ``write`` returns its text, or raises ``Refused``. It says in the file, where there are comments, the version of
    Magus, the hash of the table and how far to trust it.
    """

    name: str
    about: str
    write: Callable[[ContentT, Options], str]
    options: tuple[Option, ...] = ()

    def text(self, content: ContentT, given: Options) -> str:
        """Return the file for ``content``.

        Raises
        ------
        Refused
            If an option is unknown, missing or has another value, or if the format cannot say what the content says.
        """
        return self.write(content, self.settled(given, several=isinstance(content, PolicyTable) and content.is_several))

    def settled(self, given: Options, *, several: bool = False) -> Options:
        """Return the value of each option, of a file about one op or about ``several``.

        Raises
        ------
        Refused
            If one is unknown, missing, or has none of its values.
        """
        options = [option for option in self.options if not (several and option.of_one)]
        names = [option.name for option in options]
        for name in given:
            if name not in names:
                hint = did_you_mean(name, names) or (f"options are {listing(names)}" if names else "it has none")
                raise Refused(Rejection(Code.MGS203, f"{self.name} has no option '{name:.64}'", hint))
        return {option.name: option.settled(given.get(option.name, option.default)) for option in options}


def refused(message: str, hint: str = "") -> Refused:
    """Return the error of a format that cannot say something."""
    return Refused(Rejection(Code.MGS550, message, hint))


def heading(table: PolicyTable, target: str) -> str:
    """Return comment lines: who wrote the file from which table, for which system, and how far to trust it."""
    document = table.document()
    if table.rules:
        rule = table.rules[0]
        nodes = f" in {rule.nodes} nodes" if rule.nodes > 1 else ""
        dtype = f", {rule.dtype}" if rule.dtype else ""
        about = f"{rule.pattern or rule.workload} on {rule.ranks} x {rule.gpu}{nodes}{dtype}"
    else:
        scenario = table.points[0].advice.scenario
        about = f"{scenario.name} on {scenario.system.title}"
    return comments(
        f"Magus {__version__}, magus export --to {target}",
        *([f"rules {document['hash']}"] if table.rules else []),
        f"{about}; times {document['times']}, confidence {table.confidence}",
        *table.marks,
    )


def settings_text(point: SweepPoint) -> str:
    """Return the parameters of a point: ``M = 8192``; the name of the workload where the file has none."""
    said = ", ".join(f"{name} = {text}" for name, text in point.settings)
    return said or point.advice.scenario.name


def comments(*sentences: str) -> str:
    """Return sentences as lines that begin with ``#``."""
    lines = [line for sentence in sentences for line in textwrap.wrap(sentence, COMMENT_COLUMNS) or [""]]
    return "".join(f"# {line}\n" for line in lines)


def sizes_text(rule: PolicyRule) -> str:
    """Return the sizes of a rule: ``M 1024..4096`` or ``65536..1048576 B``."""
    sizes = str(rule.least) if rule.least == rule.most else f"{rule.least}..{rule.most}"
    return f"M {sizes}" if rule.axis == "m" else f"{sizes} B"


def gain_text(rule: PolicyRule) -> str:
    """Return the predicted gain of a rule, and whether it is within the error of predictions."""
    low, high = rule.gain
    gain = f"{low:.2f}x" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f}x to {high:.2f}x"
    return f"{gain} over the baseline" + (", within the error" if rule.verdict == "worth_trying" else "")


def main_rules(table: PolicyTable) -> tuple[PolicyRule, ...]:
    """Return the rules of rising sizes, without the fallbacks behind them, for sizes that those cannot be cut for."""
    rules: list[PolicyRule] = []
    for rule in table.rules:
        if not rules or rule.least > rules[-1].most:
            rules.append(rule)
    return tuple(rules)


def _write_table(table: PolicyTable, options: Options) -> str:
    if not table.rules:
        message = "a table is about one parameter that varies, at points that can all be carried out"
        raise Refused(Rejection(Code.MGS520, message, "--set M=1024..8192"))
    return policy_text(table.document())


POLICY = Target("policy", "rules as JSON, read by magus.advisor.policy.reader", _write_table)
