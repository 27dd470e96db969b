"""The decision variables: what a schedule chooses, one CP-SAT variable a knob."""

from collections.abc import Mapping
from dataclasses import dataclass

from ortools.sat.python import cp_model

from ...compiler.scenario import Scenario
from ...compiler.schedule import EngineChoice, EngineKind, EngineMode
from ...compiler.templates import ALL_TEMPLATES, Cut
from .space import DEFAULT_PIECES, Domains, streams_of

ENGINE_KINDS = tuple(EngineKind)
ENGINE_MODES = tuple(EngineMode)


@dataclass(frozen=True, slots=True)
class Variables:
    """Variables of one model.

    ``template``, ``kind`` and ``mode`` are indices into ALL_TEMPLATES, ENGINE_KINDS and ENGINE_MODES. ``uses`` and
    ``picks`` are the same choices as one literal for each value. ``pieces`` are the chunks of a shard, ``copy_sms`` the
    SMs that copy instead of computing. All but ``chunks`` and ``streams`` follow from one another.
    """

    template: cp_model.IntVar
    uses: Mapping[int, cp_model.IntVar]
    chunks: cp_model.IntVar
    pieces: cp_model.IntVar
    kind: cp_model.IntVar
    count: cp_model.IntVar
    mode: cp_model.IntVar
    picks: Mapping[EngineChoice, cp_model.IntVar]
    copy_sms: cp_model.IntVar
    streams: cp_model.IntVar

    @property
    def decisions(self) -> tuple[cp_model.IntVar, ...]:
        """What tells two schedules apart."""
        return self.template, self.chunks, self.kind, self.count, self.mode, self.streams

    def cutting(self, cut: Cut) -> list[cp_model.IntVar]:
        """Literals of the templates that cut this way."""
        return [literal for index, literal in self.uses.items() if ALL_TEMPLATES[index].cut is cut]


def make_variables(model: cp_model.CpModel, scenario: Scenario, domains: Domains) -> Variables:
    """Declare the variables of ``model`` over ``domains`` and tie together those that follow from one another."""
    n = scenario.num_ranks
    # Wider than what is asked for: that is a rule too, and can then be named where nothing is feasible.
    chunk_counts = sorted({n, *domains.chunks, *(n * pieces for pieces in DEFAULT_PIECES)})
    uses = {index: model.new_bool_var(f"uses_{ALL_TEMPLATES[index].name}") for index in domains.templates}
    picks = {engine: model.new_bool_var(f"picks_{engine}") for engine in domains.engines}
    most = max(engine.count for engine in domains.engines)
    streams = sorted({count for index in domains.templates for count in streams_of(ALL_TEMPLATES[index])})
    variables = Variables(
        template=model.new_int_var_from_domain(cp_model.Domain.from_values(list(domains.templates)), "template"),
        uses=uses,
        chunks=model.new_int_var_from_domain(cp_model.Domain.from_values(chunk_counts), "chunks"),
        pieces=model.new_int_var(1, max(1, chunk_counts[-1] // n), "pieces"),
        kind=model.new_int_var(0, len(ENGINE_KINDS) - 1, "engine_kind"),
        count=model.new_int_var(0, most, "engine_count"),
        mode=model.new_int_var(0, len(ENGINE_MODES) - 1, "engine_mode"),
        picks=picks,
        copy_sms=model.new_int_var(0, most, "copy_sms"),
        streams=model.new_int_var_from_domain(cp_model.Domain.from_values(streams), "streams"),
    )
    _tie(model, variables, n)
    return variables


def _tie(model: cp_model.CpModel, variables: Variables, num_ranks: int) -> None:
    uses, picks = variables.uses, variables.picks
    model.add_exactly_one(uses.values())
    model.add(variables.template == sum(index * literal for index, literal in uses.items()))
    model.add_exactly_one(picks.values())
    model.add(variables.kind == sum(ENGINE_KINDS.index(engine.kind) * pick for engine, pick in picks.items()))
    model.add(variables.count == sum(engine.count * pick for engine, pick in picks.items()))
    model.add(variables.mode == sum(ENGINE_MODES.index(engine.mode) * pick for engine, pick in picks.items()))
    by_sm = [engine.count * pick for engine, pick in picks.items() if engine.kind is EngineKind.SM]
    model.add(variables.copy_sms == sum(by_sm))
    # Fewer chunks than ranks make no piece at all; a rule of its own forbids them, and 1 keeps the remainders defined.
    model.add_max_equality(variables.pieces, [1, _quotient(model, variables.chunks, num_ranks)])


def _quotient(model: cp_model.CpModel, chunks: cp_model.IntVar, num_ranks: int) -> cp_model.IntVar:
    quotient = model.new_int_var(0, 1 << 40, "chunks_a_rank")
    model.add_division_equality(quotient, chunks, num_ranks)
    return quotient
