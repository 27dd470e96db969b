"""Rules for the example tuner of NCCL: lines of ``collective,least,most,algorithm,protocol,channels,nodes,ranks``.

A row is of calls of a collective, and what each takes: a tuner picks algorithm, protocol and channels of one call from
its size. What it cannot know is how many channels are right while a GEMM runs beside: there a row has as many as the
schedule leaves SMs to its copies.

The plugin gives one channel to each call that no line matches. So lines for all other calls come last: the ring, by the
protocols that NCCL takes itself about these sizes. A line whose algorithm or protocol is off is passed over.

The tuner that is built into RCCL reads the same columns, that of NCCLX others:
``collective,[bytes per rank],algorithm,protocol,channels,nodes,ranks of a node``. There a call that no line matches is
the library's own choice. NCCLX refuses a file with a line that it cannot read.

Since NCCL 2.31 a call takes ``ncclCollConfig_t``: CTAs, algorithm, and the policy by which copy engines do an
all_gather or all_to_all (docs.nvidia.com, NCCL, api/types).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...compiler.ir import DType, EngineChoice, EngineKind, Op, OpChoice, OpMode, Pattern, Schedule
from ...compiler.planning.knobs.library import CHANNELS
from ...compiler.resolve.schedules.from_text import SERIAL
from ...compiler.templates import BASELINE
from ...compiler.templates.collective import collective_in
from ..policy.table import PolicyRule, PolicyTable, SweepPoint
from .base import Option, Options, Target, comments, gain_text, heading, main_rules, refused, settings_text, sizes_text

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
        row = _rule_row(rule, dialect, collective)
        for other in rows:
            if other.most >= row.least and row.most >= other.least and other.settings != row.settings:
                message = f"calls of one size need two settings: {other.why}; {row.why}"
                raise refused(message, "sweep fewer rows, or let explore name one number of chunks")
        rows.append(row)
    if not rows:
        message = f"the choice of {dialect.library} itself is best at all sizes of the table: there is nothing to write"
        raise refused(message, _explored_rows(table.rules[0], dialect))
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
        message = f"{dialect.library} does not call its tuner for {rule.pattern}"
        raise refused(message, f"it does for {', '.join(COLLECTIVES)}, alone or with a GEMM")
    return collective


def _rule_row(rule: PolicyRule, dialect: Dialect, collective: str) -> TunerRow:
    where, hint = f"{sizes_text(rule)}: {rule.schedule}", _explored_rows(rule, dialect)
    by_engines = bool(rule.op.copy_engines)
    if by_engines and collective not in dialect.by_engines:
        raise refused(f"{where} moves data by copy engines, and {dialect.library} tunes calls that run on SMs", hint)
    if rule.axis == "m" and rule.op.template not in _IN_CALLS:
        raise refused(f"{where} sends to single peers, and tuners are called for collectives alone", hint)
    algorithm = ENGINES if by_engines else _algorithm(rule, dialect, collective, where)
    calls = max(1, rule.op.chunks // rule.ranks) if rule.axis == "m" else 1
    least, most = _call_bytes(rule, rule.least, calls), _call_bytes(rule, rule.most + 1, calls) - 1
    why = f"{where}, {gain_text(rule)}{f', {calls} calls' if calls > 1 else ''}"
    if rule.axis == "m" and rule.op.algorithm in _DIRECT and not by_engines:
        why += "; assumed: the ring in place of copies to all peers at once"
    return TunerRow(collective, least, most, algorithm, rule.op.protocol, rule.op.copy_sms, rule.nodes, rule.ranks, why)


def _algorithm(rule: PolicyRule, dialect: Dialect, collective: str, where: str) -> str:
    wanted = RING if rule.axis == "m" and rule.op.algorithm in _DIRECT else rule.op.algorithm
    name, does = dialect.algorithms.get(wanted, ("", ()))
    hint = _explored_rows(rule, dialect)
    if not name or collective not in does:
        said = "the direct exchange" if wanted in _DIRECT else f"'{wanted}'"
        raise refused(f"{where}: {dialect.library} has no name for {said} in its {collective}", hint)
    if name == "nvls" and rule.op.protocol != "simple":
        raise refused(f"{where}: NVLS has the protocol simple alone", hint)
    return name


def _call_bytes(rule: PolicyRule, size: int, calls: int) -> int:
    if rule.axis != "m":
        return size
    cols = rule.k if rule.pattern == Pattern.AG_GEMM.value else rule.n
    assert cols is not None, "a rule with a GEMM has its sizes"
    return DType(rule.dtype).bytes_of(size * cols) // calls


def _explored_rows(rule: PolicyRule, dialect: Dialect) -> str:
    """The space to search that the library can carry out."""
    known = ", ".join(dialect.algorithms)
    words = f"schedules {known}; algorithm {known}" if rule.axis != "m" else "schedules uniform_fused_1d"
    return f"let the search choose among what it has: explore W {{ {words}; engine sm(4), sm(8), sm(16) }}"


# Rules for the tuners of NCCL, RCCL and NCCLX: the collectives of a layer that its schedule leaves whole.
#
# What a tuner cannot know is how many channels are right while kernels run beside a call: as many as the schedule
# leaves SMs to its copies. Collectives beside nothing, those of pairs in the usual way, keep the choice of the library.

_CALLS = {"all_gather": "allgather", "reduce_scatter": "reducescatter", "all_reduce": "allreduce"}
_CALLS_BY_ENGINES = {**_CALLS, "all_to_all": "alltoall"}


def rows_of(table: PolicyTable, dialect: Dialect) -> tuple[TunerRow, ...]:
    """Return the rows of a tuner: of each rule of a table, or of the calls that schedules of several ops leave whole.

    Raises
    ------
    Refused
        As ``tuner_rows``.
    """
    return _rows_of_several(table, dialect) if table.is_several else tuner_rows(table, dialect)


def _rows_of_several(table: PolicyTable, dialect: Dialect) -> tuple[TunerRow, ...]:
    """Return a row for each size of a call that the recommended schedules leave whole beside kernels.

    Raises
    ------
    Refused
        If a schedule moves data otherwise, two calls of one size differ, or there are none.
    """
    rows: dict[tuple[str, int], TunerRow] = {}
    for point in table.points:
        for row in _rows(point, dialect):
            key = (row.collective, row.least)
            known = rows.setdefault(key, row)
            if known.settings != row.settings:
                raise refused(f"calls of one size need two settings: {known.why}; {row.why}", "sweep fewer sizes")
    if not rows:
        message = f"no collective runs whole during kernels: the choice of {dialect.library} itself is best"
        raise refused(message, _explore(table.points[0]))
    return tuple(sorted(rows.values(), key=lambda row: (row.collective, row.least)))


def _rows(point: SweepPoint, dialect: Dialect) -> Iterator[TunerRow]:
    choice = point.choice
    if choice is None or choice == SERIAL:
        return
    modes = {mode.op: mode for mode in choice.modes}
    for op in point.advice.scenario.workload.ops:
        for number in range(choice.batches):
            name = op.name if choice.batches == 1 else f"{op.name}[{number}]"
            row = _row(point, choice, op, modes.get(name), dialect)
            if row is not None:
                yield row


def _row(point: SweepPoint, choice: Schedule, op: Op, mode: OpMode | None, dialect: Dialect) -> TunerRow | None:
    """The row of an op; None where it moves nothing, or is left to the library."""
    whole = mode is not None and (mode.separate is not None or op.shape.is_collective)
    usual = mode is None or (isinstance(mode.body, OpChoice) and mode.body.template == BASELINE.name and op.is_pair)
    if op.shape.moved is None or (usual and not whole):
        return None
    where = f"{settings_text(point)}: {op.name} of {choice.name}"
    engine = _engine(mode) if whole else None
    if engine is None or mode is None:
        message = f"{where} is moved in pieces by a kernel's own plan, and tuners are called for whole collectives"
        raise refused(message, "search schedules without: explore W { schedules serial; engine sm(16) }")
    found = collective_in(op.shape.pattern) if op.is_pair else op.shape.pattern
    by_engines = engine.kind is EngineKind.DMA
    collective = (_CALLS_BY_ENGINES if by_engines else _CALLS).get("" if found is None else found.value)
    if by_engines and collective not in dialect.by_engines:
        message = f"{where} moves data by copy engines, and {dialect.library} tunes calls that run on SMs"
        raise refused(message, _explore(point))
    if collective is None:
        raise refused(f"{where}: {dialect.library} does not call its tuner for {op.label}", "it does for NCCL's calls")
    num_bytes = op.shape.moved.num_bytes // choice.batches
    how = mode.separate or mode.body
    algorithm = how.algorithm if isinstance(how, OpChoice) else ""
    name, does = (ENGINES, (collective,)) if by_engines else dialect.algorithms.get(algorithm or RING, ("", ()))
    if not name or collective not in does:
        raise refused(f"{where}: {dialect.library} has no name for '{algorithm}' in its {collective}", _explore(point))
    why = f"{where}, beside kernels" + (
        "" if algorithm or by_engines else "; assumed: the ring in place of copies to all peers"
    )
    ranks = point.advice.scenario.num_ranks
    node = point.advice.scenario.system.fabric.node_size or ranks
    return TunerRow(
        collective, num_bytes, num_bytes, name, "simple", 0 if by_engines else engine.count, ranks // node, ranks, why
    )


def _engine(mode: OpMode | None) -> EngineChoice | None:
    if mode is None:
        return None
    how = mode.separate or mode.body
    return None if how is None else how.engine


def _explore(point: SweepPoint) -> str:
    workload = point.advice.scenario.name
    return f"let the search choose among what it has: explore {workload} {{ engine sm(8), sm(16) }}"


KIB = 1 << 10
ANY_SIZE = (1 << 64) - 1
"""The largest size: samples that end at 4 GiB - 1 leave 8 GiB to one channel."""
REST = (("ll", 32 * KIB), ("ll128", 8 * KIB * KIB), ("simple", ANY_SIZE))
"""Protocols of the ring for all other calls, and the sizes up to which they are taken."""

DIALECT = Dialect(
    "NCCL",
    {
        "ring": ("ring", COLLECTIVES),
        "double_tree": ("tree", ("allreduce",)),
        "nvls": ("nvls", ("allgather", "reducescatter", "allreduce")),
    },
)


def _csv_line(row: TunerRow) -> str:
    """Return a row in the columns that NCCL and RCCL share."""
    cells = (row.collective, row.least, row.most, *row.settings, row.nodes, row.ranks)
    return ",".join(map(str, cells)) + "\n"


def _write(table: PolicyTable, options: Options) -> str:
    own = () if table.is_several else library_rules(table)
    kept = [f"{sizes_text(rule)}: the choice of NCCL itself is best, which no line can keep" for rule in own]
    rows = rows_of(table, DIALECT)
    lines = [f"{comments(row.why)}{_csv_line(row)}" for row in rows]
    rest = [
        _csv_line(TunerRow(collective, 0, most, "ring", protocol, int(options["channels"]), -1, -1, ""))
        for collective in COLLECTIVES
        for protocol, most in REST
    ]
    said = "all other calls: assumed, since the plugin gives one channel to what no line matches"
    return f"{heading(table, 'nccl')}{''.join(lines)}{comments(*kept, said)}{''.join(rest)}"


OPTIONS = (
    Option("channels", "channels of all calls without a rule, 1 to 64", tuple(map(str, range(1, 65))), str(CHANNELS)),
)
NCCL = Target("nccl", "rules for the tuner of NCCL, NCCL_TUNER_CONFIG_FILE", _write, OPTIONS)

RCCL_DIALECT = Dialect("RCCL", {"ring": ("ring", COLLECTIVES), "double_tree": ("tree", ("allreduce",))})


def _write_rccl(table: PolicyTable, options: Options) -> str:
    rows = rows_of(table, RCCL_DIALECT)
    return heading(table, "rccl") + "".join(f"{comments(row.why)}{_csv_line(row)}" for row in rows)


RCCL = Target("rccl", "rules for the tuner of RCCL, NCCL_TUNER_CONFIG_FILE", _write_rccl)


def _ncclx_line(row: TunerRow) -> str:
    sizes = f"[{row.least // row.ranks},{row.most // row.ranks}]"
    return ",".join(map(str, (row.collective, sizes, *row.settings, row.nodes, row.ranks // row.nodes))) + "\n"


def _write_ncclx(table: PolicyTable, options: Options) -> str:
    rows = rows_of(table, DIALECT)
    return heading(table, "ncclx") + "".join(f"{comments(row.why)}{_ncclx_line(row)}" for row in rows)


NCCLX = Target("ncclx", "rules for the tuner of NCCLX, NCCLX_TUNER_CONFIG_FILE", _write_ncclx)

CONFIG_DIALECT = Dialect("NCCL", DIALECT.algorithms, ("allgather", "alltoall"))


def _write_config(table: PolicyTable, options: Options) -> str:
    rows = rows_of(table, CONFIG_DIALECT)
    calls = [
        {
            "collective": row.collective,
            "bytes": [row.least, row.most],
            "config": _config(row),
            "why": row.why,
        }
        for row in rows
    ]
    alike = len({json.dumps(call["config"]) for call in calls}) == 1
    head = [line.removeprefix("# ") for line in heading(table, "nccl-config").splitlines()]
    document = {"about": head, "environment": _environment(rows[0]) if alike else None, "ncclCollConfig_t": calls}
    return json.dumps(document, indent=2) + "\n"


def _config(row: TunerRow) -> dict[str, str | int]:
    """The members of ``ncclCollConfig_t`` for such a call."""
    if row.algorithm == ENGINES:
        return {"CTAPolicy": "NCCL_CTA_POLICY_ZERO"}
    selection = f"{row.algorithm}_{row.protocol}".upper()
    return {"minCTAs": row.channels, "maxCTAs": row.channels, "algSelection": selection}


def _environment(row: TunerRow) -> dict[str, str]:
    """The same for all calls of a communicator, before 2.31."""
    if row.algorithm == ENGINES:
        return {"NCCL_CTA_POLICY": "2"}
    return {"NCCL_MIN_CTAS": str(row.channels), "NCCL_MAX_CTAS": str(row.channels)}


NCCL_CONFIG = Target("nccl-config", "ncclCollConfig_t of each call of NCCL, as JSON", _write_config)
