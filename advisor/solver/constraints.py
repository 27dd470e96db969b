"""The rules of a feasible schedule, one method a family; each can be switched off by its literal.

Together they state what ``compiler.plan.why_illegal`` checks, and the limits of memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from ortools.sat.python import cp_model

from ...compiler.codes import Code
from ...compiler.plan import COLUMN_STEP, build_schedule, slices_inner, staging_bytes, why_illegal
from ...compiler.scenario import Scenario, Tensor
from ...compiler.schedule import Choice, EngineChoice, EngineKind
from ...compiler.templates import ALL_TEMPLATES, Cut, Template
from ...compiler.templates.collective import DEFAULT_ALGORITHM
from .space import Domains, most_copy_sms, resident_bytes, streams_of
from .variables import Variables


@dataclass(frozen=True, slots=True)
class Rule:
    """A family of constraints: in force while ``literal`` is true; ``sentence`` says what it demands."""

    literal: cp_model.IntVar
    sentence: str


class Constraints:
    """Adds every family to a model. ``rules`` are those added, in the order in which they are explained."""

    def __init__(self, model: cp_model.CpModel, scenario: Scenario, domains: Domains, variables: Variables) -> None:
        self._model, self._scenario, self._domains, self._variables = model, scenario, domains, variables
        self._staging = {
            (index, engine): staging_needed(scenario, ALL_TEMPLATES[index], engine)
            for index, engine in product(variables.uses, variables.picks)
        }
        self.rules: list[Rule] = []

    def add_all(self) -> None:
        """State what a feasible schedule is."""
        self._one_name_a_schedule()
        self._template_fits_pattern()
        self._engines_exist()
        self._copy_sms_within_share()
        if self._scenario.workload.moved is not None:
            self._chunks_are_asked_for()
            self._chunks_divide_among_ranks()
            self._enough_pieces()
            self._rows_divide()
            self._columns_divide()
            self._transfer_fills_a_line()
            self._algorithms_can_do_it()
        self._staging_within_limit()
        self._memory_holds_all()

    def _rule(self, sentence: str) -> cp_model.IntVar:
        literal = self._model.new_bool_var(f"rule_{len(self.rules)}")
        self.rules.append(Rule(literal, sentence))
        return literal

    def _one_name_a_schedule(self) -> None:
        """Knobs that a template does not have stand still, so that no two solutions have the same expression."""
        model, variables, n = self._model, self._variables, self._scenario.num_ranks
        for index, literal in variables.uses.items():
            allowed = cp_model.Domain.from_values(list(streams_of(ALL_TEMPLATES[index])))
            model.add_linear_expression_in_domain(variables.streams, allowed).only_enforce_if(literal)
        for literal in variables.cutting(Cut.SHARD):
            model.add(variables.chunks == n).only_enforce_if(literal)
        for index, literal in variables.uses.items():
            if ALL_TEMPLATES[index].name == DEFAULT_ALGORITHM:  # in one piece it is serial
                model.add(variables.pieces >= 2).only_enforce_if(literal)

    def _template_fits_pattern(self) -> None:
        pattern = self._scenario.workload.pattern
        fitting = [template.name for template in ALL_TEMPLATES if pattern in template.patterns]
        rule = self._rule(f"{pattern.value} is scheduled by {_listed(fitting)} alone")
        for index, literal in self._variables.uses.items():
            if ALL_TEMPLATES[index].name not in fitting:
                self._model.add_implication(rule, ~literal)

    def _engines_exist(self) -> None:
        gpu, model = self._scenario.gpu, self._model
        asked = [str(engine) for engine in self._domains.engines if engine.kind is EngineKind.DMA]
        rule = self._rule(f"{gpu.name} has {gpu.dma.engines} DMA engines{_asked(asked)}")
        for engine, pick in self._variables.picks.items():
            if engine.kind is EngineKind.DMA:
                model.add(self._variables.count <= gpu.dma.engines).only_enforce_if(rule, pick)
                model.add(self._variables.count >= 1).only_enforce_if(rule, pick)

    def _copy_sms_within_share(self) -> None:
        gpu, model, most = self._scenario.gpu, self._model, most_copy_sms(self._scenario)
        asked = [str(engine) for engine in self._domains.engines if engine.kind is EngineKind.SM]
        rule = self._rule(f"at most {most} of {gpu.name}'s {gpu.sms} SMs may copy{_asked(asked)}")
        model.add(self._variables.copy_sms <= most).only_enforce_if(rule)
        for engine, pick in self._variables.picks.items():
            if engine.kind is EngineKind.SM:
                model.add(self._variables.copy_sms >= 1).only_enforce_if(rule, pick)

    def _chunks_are_asked_for(self) -> None:
        counts = list(self._domains.chunks)
        rule = self._rule(f"chunks are {_listed([str(count) for count in counts], 'or')}")
        allowed = cp_model.Domain.from_values(counts)
        for literal in self._cutting():
            self._model.add_linear_expression_in_domain(self._variables.chunks, allowed).only_enforce_if(rule, literal)

    def _chunks_divide_among_ranks(self) -> None:
        n = self._scenario.num_ranks
        rule = self._rule(f"chunks are a multiple of the {n} ranks")
        remainder = self._model.new_int_var(0, n - 1, "chunks_left_over")
        self._model.add_modulo_equality(remainder, self._variables.chunks, n)
        for literal in self._cutting():
            self._model.add(remainder == 0).only_enforce_if(rule, literal)
            self._model.add(self._variables.chunks >= n).only_enforce_if(rule, literal)

    def _enough_pieces(self) -> None:
        n = self._scenario.num_ranks
        least = {
            index: ALL_TEMPLATES[index].min_pieces
            for index in self._variables.uses
            if ALL_TEMPLATES[index].min_pieces > 1
        }
        if not least:
            return
        needs = _listed([f"{ALL_TEMPLATES[index].name} needs {n * pieces} chunks" for index, pieces in least.items()])
        rule = self._rule(f"{needs} or more")
        for index, pieces in least.items():
            self._model.add(self._variables.pieces >= pieces).only_enforce_if(rule, self._variables.uses[index])

    def _rows_divide(self) -> None:
        rows = self._shard_rows
        rule = self._rule(f"the {rows} rows of a shard divide into equal chunks")
        remainder = self._model.new_int_var(0, rows, "rows_left_over")
        self._model.add_modulo_equality(remainder, rows, self._variables.pieces)
        for literal in self._variables.cutting(Cut.ROWS):
            self._model.add(remainder == 0).only_enforce_if(rule, literal)

    def _columns_divide(self) -> None:
        cols = self._moved.cols
        rule = self._rule(f"the {cols} columns divide into equal chunks of a multiple of {COLUMN_STEP}")
        remainder = self._model.new_int_var(0, cols, "columns_left_over")
        self._model.add_modulo_equality(remainder, cols, COLUMN_STEP * self._variables.pieces)
        for literal in self._variables.cutting(Cut.COLUMNS):
            self._model.add(remainder == 0).only_enforce_if(rule, literal)

    def _transfer_fills_a_line(self) -> None:
        """What is smaller than a line is moved as a line: more chunks then only cost more."""
        line, shard = self._scenario.gpu.line_bytes, self._moved.num_bytes // self._scenario.num_ranks
        rule = self._rule(f"a transfer moves a line of {line} B or more, a shard has {size_text(shard)}")
        for literal in self._cutting():
            self._model.add(line * self._variables.pieces <= shard).only_enforce_if(rule, literal)

    def _algorithms_can_do_it(self) -> None:
        """An algorithm may need a switch that sums, a number of ranks, or SMs."""
        found: dict[str, list[tuple[int, EngineChoice]]] = {}
        for index, engine in product(self._variables.uses, self._variables.picks):
            reason = self._why_not(ALL_TEMPLATES[index], engine)
            if reason is not None:
                found.setdefault(reason, []).append((index, engine))
        for reason, pairs in found.items():
            rule = self._rule(reason)
            for index, engine in pairs:
                self._forbid(rule, index, engine)

    def _why_not(self, template: Template, engine: EngineChoice) -> str | None:
        """Why the algorithm of a template cannot run by ``engine``, uncut; other rules say what is wrong else."""
        scenario = self._scenario
        if not template.default_algorithm or scenario.workload.pattern not in template.patterns:
            return None
        error = why_illegal(scenario, Choice(template.name, scenario.num_ranks, engine))
        return None if error is None or error.code is not Code.MGS511 else str(error)

    def _staging_within_limit(self) -> None:
        limit = self._scenario.explore.staging_limit_bytes
        if limit is None:
            return
        rule = self._rule(f"staging <= {size_text(limit)}: {self._least_staging()}")
        self._forbid_above(rule, limit)

    def _memory_holds_all(self) -> None:
        gpu, resident = self._scenario.gpu, resident_bytes(self._scenario)
        has, takes = size_text(gpu.hbm.capacity_bytes), size_text(resident)
        sentence = (
            f"{gpu.name} has {has} of memory: tensors take {takes} a rank, and for staging {self._least_staging()}"
        )
        self._forbid_above(self._rule(sentence), gpu.hbm.capacity_bytes - resident)

    def _forbid_above(self, rule: cp_model.IntVar, limit: int) -> None:
        """Nothing that needs more than ``limit`` bytes for staging."""
        for (index, engine), needed in self._staging.items():
            if needed > limit:
                self._forbid(rule, index, engine)

    def _forbid(self, rule: cp_model.IntVar, index: int, engine: EngineChoice) -> None:
        """Under ``rule``, not this template by this engine."""
        uses, picks = self._variables.uses, self._variables.picks
        self._model.add_bool_or([~uses[index], ~picks[engine]]).only_enforce_if(rule)

    @property
    def _moved(self) -> Tensor:
        moved = self._scenario.workload.moved
        assert moved is not None, "rules about chunks are for workloads that move a tensor"
        return moved

    @property
    def _shard_rows(self) -> int:
        return self._moved.rows // self._scenario.num_ranks

    def _cutting(self) -> list[cp_model.IntVar]:
        """Literals of the templates that cut shards into chunks."""
        return self._variables.cutting(Cut.ROWS) + self._variables.cutting(Cut.COLUMNS)

    def _least_staging(self) -> str:
        """Who needs how much, in words."""
        least, templates = size_text(min(self._staging.values())), {index for index, _ in self._staging}
        if len(templates) == 1:
            return f"{ALL_TEMPLATES[next(iter(templates))].name} needs {least}"
        return f"every schedule needs at least {least}"


def staging_needed(scenario: Scenario, template: Template, engine: EngineChoice) -> int:
    """Staging memory of a rank in bytes; of the knobs, the template and for a lone collective the engine decide it."""
    choice = Choice(template.name, scenario.num_ranks, engine)
    if scenario.workload.gemm is None and why_illegal(scenario, choice) is None:
        return build_schedule(scenario, choice).staging_bytes
    return staging_bytes(scenario, slices_inner=slices_inner(scenario, template))


def size_text(num_bytes: int) -> str:
    """A size for reading, in the largest binary unit that leaves at least one.

    >>> size_text(117_440_512), size_text(1500), size_text(100)
    ('112 MiB', '1.5 KiB', '100 B')
    """
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if num_bytes >= 1 << 10 * power:
            return f"{num_bytes / (1 << 10 * power):.1f}".removesuffix(".0") + f" {unit}"
    return f"{num_bytes} B"


def _listed(words: Sequence[str], last: str = "and") -> str:
    """``a, b and c``."""
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else "".join(words)


def _asked(engines: Sequence[str]) -> str:
    return f"; asked for: {', '.join(engines)}" if engines else ""
