"""Rules as rows of a tuner of NCCL or one of its kin: calls of a collective, and what each takes.

A tuner picks algorithm, protocol and channels of one call from its size. What it cannot know is how many channels are
right while a GEMM runs beside: there a row has as many as the schedule leaves SMs to its copies.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ...compiler.ir import DType, Pattern
from ..policy.table import PolicyRule, PolicyTable
from .base import gain_text, main_rules, refused, sizes_text

COLLECTIVES = ("broadcast", "reduce", "allgather", "reducescatter", "allreduce")
"""All that a tuner is asked about. It takes other names for an allreduce, without a word."""

_COLLECTIVE_OF = {
    Pattern.ALL_GATHER: "allgather",
    Pattern.REDUCE_SCATTER: "reducescatter",
    Pattern.ALL_REDUCE: "allreduce",
    Pattern.BROADCAST: "broadcast",
    Pattern.AG_GEMM: "allgather",
    Pattern.GEMM_RS: "reducescatter",
    Pattern.GEMM_AR: "allreduce",
}
# The template of a lone collective is its algorithm; of the others, those whose slices all ranks move together: each
# slice is a call. Copies to single peers are sends and receives, which no tuner is asked about.
_IN_CALLS = ("uniform_fused_1d", "hetero_fused_1d", "pipelined")
_DIRECT = ("", "serial", "direct")
RING, ENGINES = "ring", "copy_engines"


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a library can do: its names for algorithms of Magus, and the collectives that each of them does.

    ``by_engines`` are those that it can leave to copy engines.
    """

    library: str
    algorithms: Mapping[str, tuple[str, tuple[str, ...]]]
    by_engines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TunerRow:
    """Calls of ``collective`` from ``least`` to ``most`` bytes, counted as nccl-tests does: the whole tensor.

    Those by copy engines have no ``channels``.
    """

    collective: str
    least: int
    most: int
    algorithm: str
    protocol: str
    channels: int
    nodes: int
    ranks: int
    why: str

    @property
    def settings(self) -> tuple[str, str, int]:
        """What such a call takes."""
        return self.algorithm, self.protocol, self.channels


def tuner_rows(table: PolicyTable, dialect: Dialect) -> tuple[TunerRow, ...]:
    """Return a row for each rule that asks for something else than what the library does by itself.

    Raises
    ------
    Refused
        If a rule asks for what the library cannot do, two rules for calls of one size differ, or there are no rows.
    """
    rows: list[TunerRow] = []
    own_choice = library_rules(table)
    for rule in main_rules(table):
        collective = _collective(rule, dialect)
        if rule in own_choice:
            continue
        row = _row(rule, dialect, collective)
        for other in rows:
            if other.most >= row.least and row.most >= other.least and other.settings != row.settings:
                message = f"calls of one size need two settings: {other.why}; {row.why}"
                raise refused(message, "sweep fewer rows, or let explore name one number of chunks")
        rows.append(row)
    if not rows:
        message = f"the choice of {dialect.library} itself is best at all sizes of the table: there is nothing to write"
        raise refused(message, _explore(table.rules[0], dialect))
    return tuple(rows)


def library_rules(table: PolicyTable) -> tuple[PolicyRule, ...]:
    """Return the rules that leave the choice to the library: its own is best, or nothing runs beside its call."""
    return tuple(
        rule
        for rule in main_rules(table)
        if not (rule.op.copy_engines or rule.op.copy_sms) or (rule.axis == "m" and rule.op.template == "serial")
    )


def _collective(rule: PolicyRule, dialect: Dialect) -> str:
    collective = _COLLECTIVE_OF.get(Pattern(rule.pattern))
    if collective is None:
        message = f"a tuner of {dialect.library} is not asked about {rule.pattern}"
        raise refused(message, f"it is about {', '.join(COLLECTIVES)}, alone or with a GEMM")
    return collective


def _row(rule: PolicyRule, dialect: Dialect, collective: str) -> TunerRow:
    where, hint = f"{sizes_text(rule)}: {rule.schedule}", _explore(rule, dialect)
    by_engines = bool(rule.op.copy_engines)
    if by_engines and collective not in dialect.by_engines:
        raise refused(f"{where} moves data by copy engines, and {dialect.library} tunes calls that run on SMs", hint)
    if rule.axis == "m" and rule.op.template not in _IN_CALLS:
        raise refused(f"{where} sends to single peers, and a tuner is asked about collectives", hint)
    algorithm = ENGINES if by_engines else _algorithm(rule, dialect, collective, where)
    calls = _calls(rule)
    least, most = _call_bytes(rule, rule.least, calls), _call_bytes(rule, rule.most + 1, calls) - 1
    why = f"{where}, {gain_text(rule)}{f', {calls} calls' if calls > 1 else ''}"
    if rule.axis == "m" and rule.op.algorithm in _DIRECT and not by_engines:
        why += "; assumed: the ring in place of copies to all peers at once"
    return TunerRow(collective, least, most, algorithm, rule.op.protocol, rule.op.copy_sms, rule.nodes, rule.ranks, why)


def _algorithm(rule: PolicyRule, dialect: Dialect, collective: str, where: str) -> str:
    wanted = RING if rule.axis == "m" and rule.op.algorithm in _DIRECT else rule.op.algorithm
    name, does = dialect.algorithms.get(wanted, ("", ()))
    hint = _explore(rule, dialect)
    if not name or collective not in does:
        said = "the direct exchange" if wanted in _DIRECT else f"'{wanted}'"
        raise refused(f"{where}: {dialect.library} has no name for {said} in its {collective}", hint)
    if name == "nvls" and rule.op.protocol != "simple":
        raise refused(f"{where}: NVLS has the protocol simple alone", hint)
    return name


def _calls(rule: PolicyRule) -> int:
    """Into how many calls the schedule cuts what moves: its pieces of a shard."""
    return max(1, rule.op.chunks // rule.ranks) if rule.axis == "m" else 1


def _call_bytes(rule: PolicyRule, size: int, calls: int) -> int:
    if rule.axis != "m":
        return size
    cols = rule.k if rule.pattern == Pattern.AG_GEMM.value else rule.n
    assert cols is not None, "a rule with a GEMM has its sizes"
    return DType(rule.dtype).bytes_of(size * cols) // calls


def _explore(rule: PolicyRule, dialect: Dialect) -> str:
    """The space to search that the library can carry out."""
    known = ", ".join(dialect.algorithms)
    words = f"schedules {known}; algorithm {known}" if rule.axis != "m" else "schedules uniform_fused_1d"
    return f"let the search choose among what it has: explore W {{ {words}; engine sm(4), sm(8), sm(16) }}"
