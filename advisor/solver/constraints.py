"""The rules on what moves and computes: templates, chunks, engines, streams, algorithms, and the memory they need.

With ``tactics_rules`` they state what ``compiler.planning.build.reject_choice`` checks, and the limits of memory. Each
family has a sentence, so that an empty space can be explained.
"""

from collections.abc import Callable, Iterator
from itertools import product

from ...compiler.codes import Code
from ...compiler.ir import Choice, EngineKind, ExecutionOptions, Rejection, Scenario, Tensor, cutting_of
from ...compiler.planning.build import most_copy_sms, reject_choice
from ...compiler.planning.execution import reject_mode
from ...compiler.templates import ALL_TEMPLATES, Cut, Template
from ...compiler.templates.collective import DEFAULT_ALGORITHM
from ...compiler.templates.serving import GATHERS
from .domains import Domains, algorithms_of, candidate_streams, resident_bytes
from .knobs import Knob
from .memory import least_chunks, staging_needed
from .rules import Rule, Rules, listed, size_text
from .variables import At


class Constraints:
    """Adds every family of these rules to a model."""

    def __init__(self, rules: Rules, scenario: Scenario, domains: Domains) -> None:
        self._rules, self._scenario, self._domains = rules, scenario, domains
        self._values = rules.variables.knobs.values
        self._templates = rules.variables.templates()

    def add_all(self) -> None:
        """State what a feasible structure is."""
        self._one_name_a_structure()
        self._template_fits_pattern()
        self._engines_exist()
        self._copy_sms_within_share()
        self._streams_are_asked_for()
        if self._scenario.workload.moved is not None:
            self._chunks_are_asked_for()
            self._chunks_divide_among_ranks()
            self._enough_pieces()
            self._rows_divide()
            self._columns_divide()
            self._transfer_fills_a_line()
            self._algorithms_can_do_it()
        self._memory()

    def _one_name_a_structure(self) -> None:
        """Knobs that a template does not have stand still, so that no two solutions have the same expression."""
        n, chunks, streams = self._scenario.num_ranks, self._values[Knob.CHUNKS], self._values[Knob.STREAMS]
        for digit, template in self._templates:
            own = {Knob.TEMPLATE: [digit]}
            if not template.cuts_shards:
                self._rules.forbid(own | {Knob.CHUNKS: [at for at, count in enumerate(chunks) if count != n]})
            elif template.name == DEFAULT_ALGORITHM:  # in one piece it is serial
                self._rules.forbid(own | {Knob.CHUNKS: [at for at, count in enumerate(chunks) if count // n == 1]})
            if not template.has_streams:
                self._rules.forbid(own | {Knob.STREAMS: [at for at, count in enumerate(streams) if count != 1]})
            candidates = algorithms_of(self._scenario, template, self._domains)
            names = self._values[Knob.ALGORITHM]
            self._rules.forbid(own | {Knob.ALGORITHM: [at for at, name in enumerate(names) if name not in candidates]})

    def _template_fits_pattern(self) -> None:
        pattern = self._scenario.workload.pattern
        fitting = [template.name for template in ALL_TEMPLATES if pattern in template.patterns]
        rule = self._rules.rule(f"{self._scenario.workload.label} is scheduled by {listed(fitting)} alone")
        misfits = [digit for digit, template in self._templates if template.name not in fitting]
        self._rules.forbid({Knob.TEMPLATE: misfits}, rule)

    def _engines_exist(self) -> None:
        gpu, engines = self._scenario.gpu, self._values[Knob.ENGINE]
        asked = [str(engine) for engine in self._domains.engines if engine.kind is EngineKind.DMA]
        rule = self._rules.rule(f"{gpu.name} has {gpu.dma.engines} DMA engines{_asked(asked)}")
        too_many = [
            digit
            for digit, engine in enumerate(engines)
            if engine.kind is EngineKind.DMA and not 1 <= engine.count <= gpu.dma.engines
        ]
        self._rules.forbid({Knob.ENGINE: too_many}, rule)
        self._rules.forbid_rejected(
            (reject_mode(gpu, engine), {Knob.ENGINE: [digit]}) for digit, engine in enumerate(engines)
        )

    def _copy_sms_within_share(self) -> None:
        gpu = self._scenario.gpu
        most = most_copy_sms(gpu)
        asked = [str(engine) for engine in self._domains.engines if engine.kind is EngineKind.SM]
        rule = self._rules.rule(f"at most {most} of {gpu.name}'s {gpu.sms} SMs may copy{_asked(asked)}")
        too_many = [
            digit
            for digit, engine in enumerate(self._values[Knob.ENGINE])
            if engine.kind is EngineKind.SM and not 1 <= engine.count <= most
        ]
        self._rules.forbid({Knob.ENGINE: too_many}, rule)

    def _streams_are_asked_for(self) -> None:
        several = [(digit, template) for digit, template in self._templates if template.has_streams]
        if not several:
            return
        counts = sorted({count for _, template in several for count in candidate_streams(template, self._domains)})
        rule = self._rules.rule(f"streams are {listed([str(count) for count in counts], 'or')}")
        for digit, template in several:
            candidates = candidate_streams(template, self._domains)
            other = [at for at, count in enumerate(self._values[Knob.STREAMS]) if count not in candidates]
            self._rules.forbid({Knob.TEMPLATE: [digit], Knob.STREAMS: other}, rule)

    def _chunks_are_asked_for(self) -> None:
        counts = self._domains.chunks
        rule = self._rules.rule(f"chunks are {listed([str(count) for count in counts], 'or')}")
        self._forbid_chunks(rule, (Cut.ROWS, Cut.COLUMNS), lambda count: count not in counts)

    def _chunks_divide_among_ranks(self) -> None:
        n = self._scenario.num_ranks
        rule = self._rules.rule(f"chunks are a multiple of the {n} ranks")
        self._forbid_chunks(rule, (Cut.ROWS, Cut.COLUMNS), lambda count: count % n != 0)

    def _enough_pieces(self) -> None:
        n, counts = self._scenario.num_ranks, self._values[Knob.CHUNKS]
        least = {digit: template for digit, template in self._templates if template.min_pieces > 1}
        if not least:
            return
        needs = [f"{template.name} needs {n * template.min_pieces} chunks" for template in least.values()]
        rule = self._rules.rule(f"{listed(needs)} or more")
        for digit, template in least.items():
            few = [at for at, count in enumerate(counts) if count // n < template.min_pieces]
            self._rules.forbid({Knob.TEMPLATE: [digit], Knob.CHUNKS: few}, rule)

    def _rows_divide(self) -> None:
        rows = self._moved.rows // self._scenario.num_ranks
        rule = self._rules.rule(f"the {rows} rows of a shard divide into equal chunks")
        self._forbid_chunks(rule, (Cut.ROWS,), lambda count: rows % self._pieces(count) != 0)

    def _columns_divide(self) -> None:
        cols, step = self._moved.cols, cutting_of(self._scenario.workload).column_step
        rule = self._rules.rule(f"the {cols} columns divide into equal chunks of a multiple of {step}")
        self._forbid_chunks(rule, (Cut.COLUMNS,), lambda count: cols % (step * self._pieces(count)) != 0)

    def _transfer_fills_a_line(self) -> None:
        """What is smaller than a line is moved as a line: more chunks then only cost more."""
        line, shard = self._scenario.gpu.line_bytes, self._moved.num_bytes // self._scenario.num_ranks
        rule = self._rules.rule(f"a transfer moves a line of {line} B or more, a shard has {size_text(shard)}")
        self._forbid_chunks(rule, (Cut.ROWS, Cut.COLUMNS), lambda count: line * self._pieces(count) > shard)

    def _forbid_chunks(self, rule: Rule, cuts: tuple[Cut, ...], wrong: Callable[[int], bool]) -> None:
        """Templates that cut in one of these ways do not have a count of chunks that is ``wrong``."""
        counts = [at for at, count in enumerate(self._values[Knob.CHUNKS]) if wrong(count)]
        cutting = [digit for digit, template in self._templates if template.cut in cuts]
        self._rules.forbid({Knob.TEMPLATE: cutting, Knob.CHUNKS: counts}, rule)

    def _pieces(self, count: int) -> int:
        """Chunks of a shard; fewer chunks than ranks are forbidden elsewhere."""
        return max(1, count // self._scenario.num_ranks)

    def _algorithms_can_do_it(self) -> None:
        """An algorithm may need a switch that sums, a number of ranks, or SMs; a get data that are there before."""
        self._rules.forbid_rejected(
            (self._rejected(template, at), {Knob.TEMPLATE: [digit]} | {knob: [place] for knob, place in at.items()})
            for digit, template in self._templates
            if self._scenario.workload.pattern in template.patterns
            for at in self._ways(template)
        )

    def _ways(self, template: Template) -> Iterator[dict[Knob, int]]:
        """Digits of the knobs that decide whether a template can do the collective."""
        candidates = algorithms_of(self._scenario, template, self._domains)
        streams = candidate_streams(template, self._domains)
        wanted = {Knob.ENGINE: None, Knob.ALGORITHM: candidates, Knob.STREAMS: streams, Knob.TRANSFER: None}
        places = (
            [at for at, value in enumerate(self._values[knob]) if among is None or value in among]
            for knob, among in wanted.items()
        )
        yield from (dict(zip(wanted, digits, strict=True)) for digits in product(*places))

    def _rejected(self, template: Template, at: dict[Knob, int]) -> Rejection | None:
        """Why a template cannot do the collective, uncut; other rules say what is wrong else."""
        engine, algorithm, streams, direction = (self._values[knob][digit] for knob, digit in at.items())
        least = least_chunks(self._scenario, template)
        for chunks in sorted({least, *(count for count in self._values[Knob.CHUNKS] if count > least)}):
            choice = Choice(template.name, chunks, engine, streams, ExecutionOptions(direction), algorithm)
            rejection = reject_choice(self._scenario, choice)
            if rejection is None or rejection.code is not Code.MGS512:
                return rejection if rejection is not None and rejection.code is Code.MGS511 else None
        return None

    def _memory(self) -> None:
        """What is staged is within its limit, and fits the GPU beside everything else."""
        staged = list(self._staged())
        words = self._least_staging([needed for _, needed in staged])
        limit, gpu = self._scenario.explore.staging_limit_bytes, self._scenario.gpu
        if limit is not None:
            self._forbid_above(staged, limit, self._rules.rule(f"staging <= {size_text(limit)}: {words}"))
        resident, has = resident_bytes(self._scenario), gpu.hbm.capacity_bytes
        sentence = f"{gpu.name} has {size_text(has)} of memory: tensors take {size_text(resident)} a rank"
        self._forbid_above(staged, has - resident, self._rules.rule(f"{sentence}, and for staging {words}"))

    def _forbid_above(self, staged: list[tuple[At, int]], limit: int, rule: Rule) -> None:
        for at, needed in staged:
            if needed > limit:
                self._rules.forbid(at, rule)

    def _staged(self) -> Iterator[tuple[At, int]]:
        """(digits, bytes of staging) of every candidate, by the knobs that decide it."""
        pattern = self._scenario.workload.pattern
        for digit, template in self._templates:
            knobs: tuple[Knob, ...] = ()
            if pattern.sums and template.default_algorithm:
                knobs = (Knob.ENGINE, Knob.ALGORITHM, Knob.TRANSFER)
            elif pattern in GATHERS and template.has_depth and len(self._values[Knob.DEPTH]) > 1:
                knobs = (Knob.CHUNKS, Knob.DEPTH)
            for digits in product(*(range(len(self._values[knob])) for knob in knobs)):
                at = dict(zip(knobs, digits, strict=True))
                choice = self._choice(template, at)
                yield (
                    {Knob.TEMPLATE: [digit], **{knob: [at[knob]] for knob in knobs}},
                    staging_needed(self._scenario, choice),
                )

    def _choice(self, template: Template, at: dict[Knob, int]) -> Choice:
        value = {knob: self._values[knob][at.get(knob, 0)] for knob in Knob}
        chunks = value[Knob.CHUNKS] if Knob.CHUNKS in at else self._scenario.num_ranks
        tactics = ExecutionOptions(value[Knob.TRANSFER])
        return Choice(
            template.name,
            chunks,
            value[Knob.ENGINE],
            tactics=tactics,
            algorithm=value[Knob.ALGORITHM],
            depth=value[Knob.DEPTH],
        )

    def _least_staging(self, needed: list[int]) -> str:
        """Who needs how much, in words."""
        least, most = size_text(min(needed)), size_text(max(needed))
        if len(self._templates) > 1:
            return f"every schedule needs at least {least}"
        return f"{self._templates[0][1].name} needs {least}{f' to {most}' if most != least else ''}"

    @property
    def _moved(self) -> Tensor:
        moved = self._scenario.workload.moved
        assert moved is not None, "rules about chunks are for workloads that move a tensor"
        return moved


def _asked(engines: list[str]) -> str:
    return f"; asked for: {', '.join(engines)}" if engines else ""
