"""Rules for the tuners of NCCL, RCCL and NCCLX: the collectives of a layer that its schedule leaves whole.

What a tuner cannot know is how many channels are right while kernels run beside a call: as many as the schedule leaves
SMs to its copies. Collectives beside nothing, those of pairs in the usual way, keep the choice of the library.
"""

from collections.abc import Iterator

from ...compiler.ir import EngineChoice, EngineKind, Op, OpChoice, OpMode, Schedule
from ...compiler.resolve.schedules.from_text import SERIAL
from ...compiler.templates import BASELINE
from ...compiler.templates.collective import collective_in
from ..policy.table import PolicyTable, SweepPoint
from .base import refused, settings_text
from .tuner_rows import ENGINES, RING, Dialect, TunerRow, tuner_rows

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
        message = f"no collective is left whole beside kernels: the choice of {dialect.library} itself is best"
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
        message = f"{where} is moved in pieces by a kernel's own plan, and a tuner is asked about whole calls"
        raise refused(message, "search schedules without: explore W { schedules serial; engine sm(16) }")
    found = collective_in(op.shape.pattern) if op.is_pair else op.shape.pattern
    by_engines = engine.kind is EngineKind.DMA
    collective = (_CALLS_BY_ENGINES if by_engines else _CALLS).get("" if found is None else found.value)
    if by_engines and collective not in dialect.by_engines:
        message = f"{where} moves data by copy engines, and {dialect.library} tunes calls that run on SMs"
        raise refused(message, _explore(point))
    if collective is None:
        raise refused(
            f"{where}: a tuner of {dialect.library} is not asked about {op.label}", "it is about NCCL's calls"
        )
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
