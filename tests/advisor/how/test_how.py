"""What is told of a plan is true: every step of every rank once, with its ranks, rows, queue and waits."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

import pytest

from magus.advisor.how.code import CodeNames, code_lines
from magus.advisor.how.facts import (
    Arrived,
    Block,
    Expression,
    Frame,
    Naming,
    Number,
    Role,
    StepAction,
    StepFacts,
    StepKind,
)
from magus.advisor.how.folding import FoldedStep, LocalWaits, entries_of
from magus.advisor.how.how import How, RankSteps, how_of
from magus.advisor.how.naming import tellings_of
from magus.advisor.how.words import reported_steps
from magus.compiler import compile_file, compile_text
from magus.compiler.ir import (
    Arrival,
    Direction,
    IndexRange,
    Kernels,
    OpCase,
    OpPlan,
    Reach,
    Reduction,
    Step,
    TileGroup,
    Transfer,
    arrivals_at,
    inner_size,
    moved_rows,
    regions_of,
    tile_cols,
    tile_rows,
)
from magus.compiler.planning.build import declared
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from magus.compiler.verify.accesses import AccessMap, reads_result
from magus.compiler.verify.happens_before import Waits
from magus.examples import path
from tests.helpers.marks import thinned
from tests.helpers.paths import ROOT
from tests.helpers.plans.plans import BODIES, all_schedules, scenario_of, text_of
from tests.helpers.scenarios.compiled import cases_in

EXAMPLES = sorted((ROOT / "examples").glob("*.mgs")) + sorted((ROOT / "examples" / "templates").glob("*.mgs"))
LLAMA = [
    "bespoke(parts=[[1024, 0], [0, 384], [0, 640]], engine=dma(7), streams=2)",
    "bespoke(parts=[[0, 128], [0, 256], [0, 64], [0, 512], [0, 64], [1024, 0]], engine=dma(7), streams=3, lanes=5)",
    "bespoke(parts=[[0, 512], [1024, 512]], slices=[[], [2048, 6144]], engine=dma(7))",
    "hetero_fused_1d(chunks=64, engine=sm(16), kernel=persistent)",
    "hetero_fused_1d(chunks=16, engine=dma(7), order=absolute)",
    "uniform_fused_1d(chunks=64, engine=dma(7), transfer=get, depth=2)",
    "hetero_unfused_1d(chunks=32, engine=dma(7), streams=3)",
    "pipelined(chunks=32, engine=dma(7), algorithm=double_ring, waves=3, streams=2)",
]
RS = [
    "uniform_fused_1d(chunks=16, engine=sm(tiles), kernel=persistent)",
    "pipelined(chunks=32, engine=dma(7), waves=2, sums=3)",
    "bespoke(parts=[[0, 384], [0, 640], [1024, 0]], columns=[[], [2048, 6144], []], engine=dma(7))",
    "serial(engine=sm(16, library))",
]
OVERRIDDEN = """
use "nvidia/h100"
system quad { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
workload w on quad {
  x = tensor bf16[4096, 1024] shard rows
  y = all_gather(x)
}
schedule by_hand for w {
  plan by dma(3)
  t1 = put y.shard(0) to 1 signal s1
  t2 = put y.shard(0) to 2 signal s2
  t3 = put y.shard(0) to 3 signal s3
  override rank 3 { t1 = put y.shard(0) to 1 signal s1 after t2 }
}
"""


LINE = """
use "nvidia/h100"
system line { gpus 4 x H100; fabric edges(nvlink=[[0, 1], [1, 2], [2, 3]]) }
workload w on line { x = tensor bf16[4096, 1024]; y = all_to_all(x) }
schedule passed for w = forest(chunks=8, trees=[[0, 1, 0, 0, 1, 2], [1, 1, 1, 1, 1, 2], [2, 1, 1, 2, 2, 2],
    [3, 1, 1, 2, 3, 3]])
"""

SEVERAL = """
use "nvidia/h100"
system five { gpus 5 x H100; fabric switch(nvswitch, link=nvlink) }
system torus { gpus 49 x H100; fabric torus(nvlink, shape=[7, 7]) }
workload sum on five { x = tensor bf16[80, 256]; y = reduce_scatter(x) }
workload wide on torus { x = tensor bf16[3136, 64]; y = all_reduce(x) }
schedule mixed for sum { plan by dma(4)
  a = put x.shard(1) to -1 signal sa
  r = reduce x.shard(2) parts 2 after sa
  b = put x.shard(3, 2) to -2 signal sb after r
  q = reduce x.shard(-1) parts 2 after sb
  c = put x.shard(-1) to -1 signal sc after q
  z = reduce x.shard(0) parts 3 after sb, sc
}
schedule tree for wide = torus_tree(engine=dma(4), lanes=4)
"""
UNEVEN = """
use "amd/mi300x"
system three { gpus 3 x MI300X; fabric edges(xgmi=[[0, 1], [1, 2], [2, 0]]) }
workload w on three { x = tensor bf16[4, 8192]; y = all_reduce(x) }
schedule at_once for w { plan by dma(4)
  rank 0 { RANK; b = put x.shard(0)[2728:2736] to 1 signal u; c = put x.shard(0)[2728:2736] to 2 signal v
    q = reduce x.shard(0)[2728:2736] parts 3 after u, v }
  rank 1 { RANK; b = put x.shard(2)[2728:2736] to 1 signal u; c = put x.shard(2)[2728:2736] to 2 signal v
    q = reduce x.shard(2)[2728:2736] parts 3 after u, v }
  rank 2 { RANK; b = put x.shard(1)[2728:2736] to 1 signal u; c = put x.shard(1)[2728:2736] to 2 signal v
    q = reduce x.shard(1)[2728:2736] parts 3 after u, v }
}
""".replace(
    "RANK",
    "s = put x.shard(0, 1, 2)[0:2728] to 1 signal ss; t = put x.shard(0, 1, 2)[0:2728] to 2 signal st; "
    "r = reduce x.shard(0, 1, 2)[0:2728] parts 3 after ss, st",
)
"""Blocks of 2736, 2728 and 2728 columns: all of two and less of the first are summed by one kernel."""


def drawn() -> Iterator[tuple[str, OpCase, OpPlan]]:
    for body in BODIES:
        for schedule in all_schedules(body):
            yield body, scenario_of(body), schedule


def shipped(file: Path) -> Iterator[tuple[str, OpCase, OpPlan]]:
    for scenario in cases_in(compile_file(file)):
        for named in scenario.schedules:
            yield named.name, scenario, declared(scenario, named)


def requested() -> Iterator[tuple[str, OpCase, OpPlan]]:
    for name, texts in (("llama70b_tp8_mi300x", LLAMA), ("gemm_rs_h100", RS)):
        scenario = compile_file(path(name)).scenario().case
        yield from ((text, scenario, resolve_schedule(scenario, text)) for text in texts)
    for scenario in (each for text in (OVERRIDDEN, LINE, SEVERAL, UNEVEN) for each in cases_in(compile_text(text))):
        yield scenario.schedules[0].name, scenario, declared(scenario, scenario.schedules[0])


@pytest.mark.slow
def test_every_step_of_drawn_plans_is_reported_once_and_truly() -> None:
    check(drawn())


def test_every_step_of_unusual_plans_is_reported_once_and_truly() -> None:
    check(requested())


@pytest.mark.quick(2)
@pytest.mark.parametrize("file", thinned(EXAMPLES, 3), ids=[file.stem for file in EXAMPLES])
def test_every_step_of_the_examples_is_reported_once_and_truly(file: Path) -> None:
    check(shipped(file))


def check(cases: Iterable[tuple[str, OpCase, OpPlan]]) -> None:
    for name, scenario, schedule in cases:
        how = how_of(scenario, schedule)

        assert Counter(rank for group in how.groups for rank in group.ranks) == Counter(range(scenario.num_ranks)), name
        for group in how.groups:
            entries = list(entries_of(group.nodes))
            for rank in group.ranks[:: 3 if schedule.symmetric else 1]:
                places = Counter(place for entry in entries for place in entry.places)
                assert places == Counter(range(len(schedule.steps_of(rank)))), name
                if not schedule.engine.by_library:
                    _Judge(how, group, rank).check(entries)
        assert all(line.text and "None" not in line.text for line in reported_steps(how)), name
        assert all(line and "None" not in line.replace("else None", "") for line in code_lines(how)), name


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["llama70b_tp8_mi300x", "gemm_rs_h100", "all_reduce_h100", "hot_expert_mi300x"])
def test_the_formulas_that_are_written_give_the_numbers(name: str) -> None:
    extra = [(scenario, schedule) for _, scenario, schedule in requested()]
    for scenario, schedule in [*extra, *((scenario, schedule) for _, scenario, schedule in shipped(path(name)))]:
        for telling in tellings_of(how_of(scenario, schedule)):
            for place, entry in enumerate(telling.entries):
                names = CodeNames.of(telling.names(place))
                for rounds in product(*map(range, entry.counts)):
                    _compare(entry.facts, names, rounds, telling.group)


def _compare(facts: StepFacts[Expression], names: CodeNames, rounds: tuple[int, ...], group: RankSteps) -> None:
    rank, n = group.ranks[-1], names.frame.num_ranks
    here = {each.name: each.start + round_ for each, round_ in zip(names.variables, rounds, strict=True)}
    for what, _, number in facts.numbers():
        if what in (Number.SIZE, Number.QUEUE):
            assert eval(names.number(number), dict(here)) == number.at(rounds)
    codes = [*([facts.peer] if facts.peer else []), *(block.owner for block in facts.blocks if block.owner)]
    for code in codes if names.frame.naming is not Naming.NODES else []:
        wanted = decoded(names.frame, rank, tuple(each.at(rounds) for each in code))
        assert eval(names.rank(code), {**here, "r": rank}) % n == wanted


def decoded(frame: Frame, rank: int, code: tuple[int, ...]) -> int:
    """Return the absolute rank that ``rank`` names by ``code``."""
    match frame.naming:
        case Naming.SHIFT:
            return (rank + code[0]) % frame.num_ranks
        case Naming.NODES:
            nodes, size = frame.moduli
            return (rank // size + code[0]) % nodes * size + (rank + code[1]) % size
        case Naming.XOR:
            return rank ^ code[0]
        case Naming.ABSOLUTE:
            return code[0]


class _Judge:
    """Compares what is told of one rank with its plan."""

    def __init__(self, how: How, group: RankSteps, rank: int) -> None:
        self.how, self.group, self.rank = how, group, rank
        self.scenario, self.n, self.frame = how.scenario, how.scenario.num_ranks, group.frame
        self.workload = self.scenario.shape.at(rank)
        self.steps = how.schedule.steps_of(rank)
        self.waits = LocalWaits(group.nodes)
        self.arrivals: dict[str, list[Arrival]] = {}
        for arrival in arrivals_at(self.scenario, how.schedule, rank):
            self.arrivals.setdefault(arrival.transfer.signal, []).append(arrival)

    def check(self, entries: list[FoldedStep]) -> None:
        for entry in entries:
            for rounds, place in zip(product(*map(range, entry.counts)), entry.places, strict=True):
                step = self.steps[place]
                self.check_action(entry.facts, step, rounds)
                self.check_waits(entry, step, rounds)

    def check_action(self, facts: StepFacts[Expression], step: Step, at: tuple[int, ...]) -> None:
        reported = [self.region(block, at, step) for block in facts.blocks]
        regions = regions_of(step)
        ordered = not isinstance(step, TileGroup) and len(regions) == 1
        wanted = [((self.rank + each.owner) % self.n, each.rows, each.cols) for each in regions]
        if facts.blocks[0].role is Role.ALL:
            wanted = [(self.rank, rows, cols) for _, rows, cols in wanted]
        assert reported == wanted if ordered else Counter(reported) == Counter(wanted)
        queue = facts.queue[0].at(at) if facts.queue else None
        match step:
            case Transfer():
                kind = StepKind.PUT if step.direction is Direction.PUT else StepKind.GET
                to_all = step.reach is Reach.ALL
                assert (facts.action.kind, facts.action.to_all, queue) == (kind, to_all, step.lane)
                assert facts.action.adds is (step.reduce and not to_all)
                assert self.other_end(facts.blocks[0], at) == (self.rank + step.origin) % self.n
                if not to_all:
                    assert self.rank_of(facts.peer, at) == (self.rank + step.peer) % self.n
            case TileGroup():
                assert facts.action == StepAction(StepKind.KERNEL, adds=step.accumulate, kernel=step.kernel)
                inner = tuple(each.at(at) for each in facts.inner)
                assert inner == ((step.k.start, step.k.stop) if facts.inner else ())
                assert facts.inner or step.k == IndexRange(0, inner_size(self.workload.stage(step.kernel)))
                assert queue == step.stream
            case Reduction():
                assert facts.action == StepAction(StepKind.SUM, parts=step.num_parts) and queue == step.stream

    def check_waits(self, entry: FoldedStep, step: Step, at: tuple[int, ...]) -> None:
        reported = {self.steps[place].name for place in self.local_places(entry, at)}
        wanted = {name for name in step.after if name not in self.arrivals}
        assert reported <= wanted
        assert all(self.comes_after(step, name) for name in wanted - reported)
        arrived = Counter(self.arrived_at(each, at) for each in entry.facts.arrived)
        signals = (arrival for name in step.after for arrival in self.arrivals.get(name, ()))
        assert arrived == Counter(each for arrival in signals for each in self.arrived(arrival))

    def local_places(self, entry: FoldedStep, at: tuple[int, ...]) -> Iterator[int]:
        for wait in self.waits.of(entry):
            if wait.stop is not None and not wait.start <= at[wait.axis] < wait.stop:
                continue
            target = self.waits.entries[wait.entry]
            for rounds, place in zip(product(*map(range, target.counts)), target.places, strict=True):
                said = zip(rounds, wait.rounds, strict=True)
                if all(each is None or each.at(at) == round_ for round_, each in said):
                    yield place

    def comes_after(self, step: Step, name: str) -> bool:
        """Whether a step comes after another anyway: both are in one lane, or in one stream."""
        names = [each.name for each in self.steps]
        other = self.steps[names.index(name)]
        if isinstance(step, Transfer) and isinstance(other, Transfer):
            alike = step.lane == other.lane is not None
        else:
            assert not isinstance(step, Transfer) and not isinstance(other, Transfer)
            alike = step.stream == other.stream and self.how.schedule.tactics.kernel is Kernels.LAUNCHED
        return alike and names.index(name) < names.index(step.name)

    def rank_of(self, code: tuple[Expression, ...], at: tuple[int, ...]) -> int:
        return decoded(self.frame, self.rank, tuple(each.at(at) for each in code))

    def other_end(self, block: Block[Expression], at: tuple[int, ...]) -> int:
        return self.rank_of(block.other, at) if block.other else self.rank

    def region(self, block: Block[Expression], at: tuple[int, ...], step: Step) -> tuple[int, IndexRange, IndexRange]:
        owner = self.rank_of(block.owner, at) if block.owner else self.rank
        stage = self.workload.stage(step.kernel) if isinstance(step, TileGroup) else None
        behind = (owner - self.rank) % self.n
        if stage is not None:
            rows, cols = tile_rows(stage, self.n, behind if block.owner else 0), tile_cols(stage)
        else:
            get = isinstance(step, Transfer) and step.direction is Direction.GET
            rows = moved_rows(self.workload, self.n, behind, step.peer if get and isinstance(step, Transfer) else 0)
            cols = self.workload.moved.cols if self.workload.moved is not None else 0
        return owner, self.rows(block, at, rows), self.range(block.cols, at, cols)

    def rows(self, block: Block[Expression], at: tuple[int, ...], size: int) -> IndexRange:
        found = self.range(block.rows, at, size)
        parts = self.how.parts_of_block
        if not block.rows or not parts:
            return found
        return IndexRange(found.start * size // parts, found.stop * size // parts)

    @staticmethod
    def range(limits: tuple[Expression, ...], at: tuple[int, ...], size: int) -> IndexRange:
        return IndexRange(limits[0].at(at), limits[1].at(at)) if limits else IndexRange(0, size)

    def arrived_at(self, each: Arrived[Expression], at: tuple[int, ...]) -> tuple[object, ...]:
        owner, source = self.rank_of(each.block.owner, at), self.rank_of(each.source, at)
        exchanged = each.block.role is Role.FROM
        behind, before = (owner - self.rank) % self.n, (source - self.rank) % self.n
        size = moved_rows(self.workload, self.n, 0 if exchanged else behind, before)
        assert self.workload.moved is not None
        cols = self.range(each.block.cols, at, self.workload.moved.cols)
        return owner, source, self.rows(each.block, at, size), cols, each.adds, self.other_end(each.block, at)

    def arrived(self, arrival: Arrival) -> Iterator[tuple[object, ...]]:
        source = (self.rank + arrival.source) % self.n
        exchanged = self.workload.pattern.exchanges
        adds = arrival.transfer.reduce and arrival.transfer.reach is Reach.PEER
        for region in arrival.region.each:
            owner = source if exchanged else (self.rank + region.owner) % self.n
            target = (self.rank + (region.owner if exchanged else 0)) % self.n
            yield owner, source, region.rows, region.cols, adds, target


@pytest.mark.parametrize("naming", list(Naming))
def test_every_rank_has_a_name_of_its_own(naming: Naming) -> None:
    frame = Frame(naming, 8, 4)

    for rank in range(8):
        codes = [frame.code(rank, other) for other in range(8)]
        assert len(set(codes)) == 8
        assert [decoded(frame, rank, code) for code in codes] == list(range(8))


def test_a_plan_of_64_chunks_takes_a_screen() -> None:
    scenario = compile_file(path("llama70b_tp8_mi300x")).scenario().case
    for template in ("uniform_fused_1d", "hetero_fused_1d", "hetero_unfused_1d", "pipelined", "uniform_fused_2d"):
        chunks = 64 if template != "uniform_fused_2d" else 128
        how = how_of(scenario, resolve_schedule(scenario, f"{template}(chunks={chunks}, engine=dma(7))"))
        assert len(reported_steps(how)) <= 8 and len(code_lines(how)) <= 30


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "example, name, naming, groups",
    [
        ("llama70b_tp8_mi300x", "mine", Naming.SHIFT, 1),
        ("all_reduce_h100", "pairs", Naming.XOR, 1),
        ("fsdp_two_nodes_h100", "by_nodes", Naming.NODES, 1),
        ("all_reduce_h100", "trees", Naming.ABSOLUTE, 8),
        ("hot_expert_mi300x", "own_first", Naming.SHIFT, 1),
    ],
)
def test_ranks_that_do_the_same_are_reported_once(example: str, name: str, naming: Naming, groups: int) -> None:
    scenario = compile_file(path(example)).scenario().case
    how = how_of(scenario, resolve_schedule(scenario, name))

    assert (how.groups[0].frame.naming, len(how.groups)) == (naming, groups)


@pytest.mark.parametrize(
    "body, reported",
    [
        ("AG+GEMM", ["library: call all_gather of x_gathered", "stream 0: when step 1 is done, GEMM for every block"]),
        ("GEMM+A2A", ["stream 0: GEMM for all rows for every rank", "library: when step 1 is done, call all_to_all"]),
        (
            "side by side",
            [
                "stream 0: GEMM for all rows for every rank",
                "library: when step 1 is done, call all_to_all",
                "stream 1: when step 1 is done and step 2 is done, GEMM for all rows from every rank",
            ],
        ),
        ("all_reduce", ["library: call all_reduce of x, which moves everything"]),
        ("GEMM || all_gather", ["stream 0: GEMM for all rows", "library: when step 1 is done, call all_gather of g"]),
    ],
)
def test_the_library_is_called_before_what_needs_it_and_behind_what_it_needs(body: str, reported: list[str]) -> None:
    text = text_of(body).replace("amd/mi300x", "nvidia/h100").replace("MI300X", "H100")
    scenario = compile_text(text.replace("full_mesh(xgmi)", "switch(nvswitch, link=nvlink)")).scenario().case
    how = how_of(scenario, resolve_schedule(scenario, "serial(engine=sm(16, library))"))
    lines = [line.text for line in reported_steps(how)]

    assert len(lines) == len(reported)
    for line, start in zip(lines, reported, strict=True):
        assert line.startswith(start), lines


def test_a_call_of_the_library_is_one_step() -> None:
    scenario = compile_file(path("gemm_rs_h100")).scenario().case
    how = how_of(scenario, resolve_schedule(scenario, "serial(engine=sm(16, library))"))

    assert [line.text for line in reported_steps(how)] == [
        "stream 0: GEMM for every block (8192 rows)",
        "library: when step 1 is done, call reduce_scatter of p, which moves everything",
    ]


def test_what_is_passed_on_is_told_by_both_its_ends() -> None:
    """Along a line rank 1 passes on what rank 2 has for rank 0."""
    scenario = compile_text(LINE).scenario().case
    how = how_of(scenario, declared(scenario, scenario.schedules[0]))
    lines, code = [line.text for line in reported_steps(how)], code_lines(how)

    rows, block = "rows 512i:512i+512", "x.by[2].to[0][512*i:512*i+512]"
    told = f"when {rows} from rank 2 for rank 0 have arrived, put {rows} of rank 2 for rank 0 to rank 0"
    assert any(told in line for line in lines), lines
    assert any(f"put({block}, to=0, after=arrived({block}))" in line for line in code), code


@pytest.mark.slow
def test_what_is_summed_is_reported_from_what_is_not() -> None:
    """The sums that are passed on are those that the checks of the compiler find."""
    files = [path(name) for name in ("gemm_rs_h100", "all_reduce_h100")]
    cases = [
        (scenario, schedule)
        for _, scenario, schedule in (*drawn(), *(each for file in files for each in shipped(file)))
    ]
    summing = [each for each in cases if each[0].shape.pattern.sums and len(each[1].steps) <= 200]
    wrong = [step for each in summing for step, reported, taken in puts_of(*each) if reported != taken]

    assert summing and wrong == []


def test_a_put_takes_sums_of_some_ranks_and_own_parts_of_others() -> None:
    cases = cases_in(compile_text(SEVERAL))
    puts = [each for case in cases for each in puts_of(case, declared(case, case.schedules[0]))]
    case = cases[0]
    lines = [line.text for line in reported_steps(how_of(case, declared(case, case.schedules[0])))]

    assert [step for step, reported, taken in puts if reported != taken] == []
    assert any(0 < taken < len(step.region.owners) for step, _, taken in puts)
    assert "the sum so far of block r+2 and the own part of block r-2 to rank r-2" in lines[2]
    assert lines[3].endswith("when blocks r, r-1 have arrived from rank r+2, sum the 2 parts of block r-1")
    assert lines[5].endswith("and block r-1 has arrived from rank r+2, sum the 3 parts of block r")


def test_each_of_several_blocks_may_come_from_several_ranks() -> None:
    case = compile_text(UNEVEN).scenario().case
    how = how_of(case, declared(case, case.schedules[0]))
    lines = [line.text for line in reported_steps(how)]
    both = "when blocks 1, 2 have each arrived from ranks 1, 2 and rows 0:2728 of block 0 have arrived from ranks 1, 2"

    assert any(f"{both}, sum the 3 parts of rows 0:2728 of block 0 and blocks 1, 2" in line for line in lines), lines
    assert sum("wait(arrived(x[1], of=[1, 2]))" in line for line in code_lines(how)) == 1


def puts_of(scenario: OpCase, schedule: OpPlan) -> Iterator[tuple[Transfer, int, int]]:
    """The puts of a plan, of how many blocks they are told to take a sum, and of how many they do."""
    access_map = AccessMap(scenario, schedule, Waits(scenario, schedule))
    for group in how_of(scenario, schedule).groups:
        for entry in entries_of(group.nodes):
            for step in (schedule.steps_of(group.ranks[0])[place] for place in entry.places):
                if isinstance(step, Transfer) and step.direction is Direction.PUT:
                    yield step, entry.facts.action.summed, _takes_sum(access_map, group.ranks[0], step)


def _takes_sum(access_map: AccessMap, rank: int, step: Transfer) -> int:
    found = dict[int, set[bool]]()
    for region, cell in access_map.cells(step):
        place = access_map.place(rank, rank, region, cell)
        found.setdefault(region.owner, set()).add(reads_result(access_map, place, (rank - place[0], step.name)))
    assert all(len(each) == 1 for each in found.values())
    return sum(each.pop() for each in found.values())
