"""Exactness of the simulator: integer for integer what the event-driven oracle of the tests gives, on many programs.

And what the comparison is worth: how often it notices a core, an order of ties or a fold that is wrong on purpose.
"""

import itertools
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from unittest.mock import patch

from magus.compiler.ir import (
    Arbitration,
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    GroupEngine,
    GroupKernel,
    OpChoice,
    WaveLoop,
    WithLoaded,
)
from magus.compiler.planning.build import build_op_plan
from magus.simcore.cores import windows
from magus.simcore.cores.engine import Core, run
from magus.simcore.fold.refine import Refusal, detect
from magus.simcore.fold.run import expand, quotient
from magus.simcore.fold.verify import FoldError
from magus.simcore.lower.plan import lower, plan_of
from magus.simcore.program.arrays import NONE
from magus.simcore.program.program import Program, Run
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.collective_programs import Algorithm, Collective, Fabric, System, collective, symmetric
from tests.helpers.oracle.mutants import (
    half_as_long_again,
    with_larger_buffers,
    with_later_credits,
    with_slower_polls,
    with_ties_backwards,
    with_wider_windows,
)
from tests.helpers.oracle.oracle import Oracle, OracleRun
from tests.helpers.oracle.spmd_programs import PERTURBATIONS, random_spmd
from tests.helpers.oracle.strategies import ALL, PLAIN, Feature, random_program
from tests.helpers.scenarios.programs import BODIES, drawn_program
from tests.helpers.scenarios.scenarios import (
    ag_gemm,
    full_mesh,
    gemm_rs,
    h100,
    lone_gather,
    lone_scatter,
    ring,
    switch,
)
from tests.helpers.scenarios.workloads import SYSTEMS, TEXTS, choices_of, workload_of

from .harness.report import Figure, parser_of, tell

Case = tuple[str, Program]

FEATURES = (PLAIN, *Feature, ALL)
OP_LEVEL = {"outcome", "stuck", "ready", "start", "done", "makespan"}
"""What a fold has to get right in a deadlock too: how far the rest got depends on when it was noticed."""

ONE_TOO_MANY = {
    "windows one unit wider": with_wider_windows,
    "buffers one unit larger": with_larger_buffers,
    "credits one tick later": with_later_credits,
    "polls one tick slower": with_slower_polls,
}

CHANGED_TIMES = ("server", "latency", "every other", "opposite", "pool")
"""Perturbations after which an op, flow or server still has the number it had."""


@dataclass
class Tally:
    """Comparisons of one suite by one core or way."""

    cases: int = 0
    deadlocks: int = 0  # the same on both sides
    wrong: list[str] = field(default_factory=list)  # what and which case

    def count(self, case: str, names: Iterable[str], expected: OracleRun) -> None:
        """Take in what differs in a case."""
        found = ", ".join(names)
        self.cases += 1
        self.deadlocks += expected.deadlock and not found
        if found:
            self.wrong.append(f"{case}: {found}")
            print(f"differs: {case}: {found}", file=sys.stderr)

    def figures(self, suite: str, core: Core | None = None) -> Iterator[Figure]:
        """Cases, mismatches and deadlocks."""
        name = f"{suite}, {core.value}" if core else suite
        yield Figure(f"{name}, mismatches", len(self.wrong), f"of {self.cases}", "lower", 0)
        yield Figure(f"{name}, deadlocks agreed", self.deadlocks, f"of {self.cases}", "higher")


def measure(cases: int, seed: int) -> Iterator[Figure]:
    """All suites, then all that is wrong on purpose."""
    for features in FEATURES:
        name = "plain" if features is PLAIN else "all features" if features is ALL else str(features.name).lower()
        yield from every_core(f"random programs, {name}", random_programs(cases, seed, features))
    yield from every_core("collectives", collectives(cases // 4, seed))
    yield from every_core("lowered scenarios, 2 to 8 KiB", lowered())
    yield from every_core("attention and experts, 4 KiB", other_kernels())
    yield from every_core("work-groups, in lines", work_groups(cases // 4, seed))
    yield from every_core("programs of work-groups, in lines", programs(cases // 4, seed))
    yield from one_for_all(cases // 4, seed)
    yield from folds(cases, seed)
    yield from wrong_on_purpose(min(cases, 200), seed)
    yield from wrong_folds(min(cases, 300), seed)


def random_programs(count: int, seed: int, features: Feature) -> Iterator[Case]:
    """Random programs on one to three ranks."""
    for number in range(seed, seed + count):
        yield f"seed {number}, {features}", random_program(number, num_ranks=1 + number % 3, features=features)


def random_systems(count: int, seed: int) -> Iterator[tuple[Collective, Algorithm, System, int]]:
    """Collectives with all there is drawn at random, in units of 1, 2 and 8 lines in turn."""
    rng = random.Random(seed)
    pairs = itertools.cycle(itertools.product(Collective, Algorithm, Fabric))
    for number, (kind, algorithm, fabric) in enumerate(itertools.islice(pairs, count)):
        nodes, places = rng.choice(((1, 2), (1, 4), (1, 6), (2, 2), (2, 3), (3, 4), (4, 1)))
        lines = (1, 2, 8)[number % 3]
        system = System(
            nodes,
            places,
            fabric,
            engines=rng.randint(1, 4),
            setup_ticks=rng.choice((0, 1, 5)),
            window_units=rng.choice((0, 0, 1, 4)),
            buffer_units=rng.choice((0, 0, 1, 3)),
            credit_ticks=rng.choice((0, 1, 20)),
            poll_ticks=rng.choice((0, 0, 7, 50)),
            unit_bytes=128 * lines,
            hbm=(2 * lines, rng.choice((0, 10))),
            link=(5 * lines, 30),
            nic=(7 * lines, 90),
        )
        yield kind, algorithm, system, -(-8 // lines) * system.num_ranks


def collectives(count: int, seed: int) -> Iterator[Case]:
    """Every collective by every algorithm on every fabric, all ranks."""
    for kind, algorithm, system, units in random_systems(count, seed):
        yield f"{kind.value}, {algorithm.value}, {system}, {units} units", collective(kind, algorithm, system, units)


def lowered() -> Iterator[Case]:
    """Overlapped GEMMs as the simulator is given them, in packets of several sizes, unfolded and folded."""
    dma, sm = EngineChoice(EngineKind.DMA, 3), EngineChoice(EngineKind.SM, 8)
    choices = (OpChoice("serial", 4, dma), OpChoice("hetero_fused_1d", 8, sm), OpChoice("uniform_fused_1d", 16, dma))
    systems = itertools.product((ag_gemm, gemm_rs), (full_mesh(), ring(), switch()))
    for (make, fabric), choice, unit_bytes in itertools.product(systems, choices, (8192, 4096, 2048)):
        scenario = make(128, 256, 256, ranks=4, fabric=fabric)
        schedule = build_op_plan(scenario, choice)
        for fold in (True, False) if unit_bytes == 8192 else (True,):
            case = f"{make.__name__}, {fabric.topology.name}, {choice.template}, {unit_bytes} bytes, folded: {fold}"
            yield case, lower(scenario.system, plan_of(scenario, schedule), unit_bytes=unit_bytes, fold=fold).program


def other_kernels() -> Iterator[Case]:
    """Kernels other than a GEMM before and after a collective, by every template and on every fabric, one rank."""
    for name, system in itertools.product(TEXTS, range(len(SYSTEMS))):
        scenario = workload_of(name, ranks=4, m=512, system=system)
        for choice in choices_of(scenario, (2,)):
            plan = plan_of(scenario, build_op_plan(scenario, choice))
            program = lower(scenario.system, plan, unit_bytes=4096).program
            yield f"{name}, {SYSTEMS[system]}, {choice.template}, {choice.engine}", program


def work_groups(count: int, seed: int) -> Iterator[Case]:
    """Lone collectives by drawn kernels of work-groups, on three fabrics, unfolded and folded in turn."""
    rng = random.Random(seed)
    made = itertools.cycle(itertools.product((lone_gather, lone_scatter), Direction, (full_mesh, ring, switch)))
    for number, (make, direction, fabric) in enumerate(itertools.islice(made, count)):
        turn, turns, then = rng.choice((1, 2, 4, 16)), rng.choice((1, 2, 3)), rng.choice(list(WithLoaded))
        get = WaveLoop(turn * turns, turn * (turns - 1), then if make is lone_scatter else WithLoaded.STORE)
        drawn = rng.randint(1, 4), rng.choice((0, 1, 16, 100)), rng.choice(list(Arbitration))
        kernel = GroupKernel("drawn", rng.randint(1, 9), WaveLoop(turn), get, *drawn)
        scenario = make(64, 8 * rng.randint(1, 16), ranks=4, gpu=h100(), fabric=fabric())
        tactics = ExecutionOptions(direction=direction)
        engine = GroupEngine(EngineKind.SM, kernel.groups, program=kernel)
        schedule = build_op_plan(scenario, OpChoice("direct", 4, engine, tactics=tactics))
        program = lower(scenario.system, plan_of(scenario, schedule), unit_bytes=128, fold=number % 2 == 0).program
        yield f"{make.__name__}, {fabric.__name__}, {direction.value}, {kernel}, folded: {number % 2 == 0}", program


def programs(count: int, seed: int) -> Iterator[Case]:
    """Collectives by drawn programs of work-groups, unfolded and folded in turn."""
    rng = random.Random(seed)
    for number, name in enumerate(itertools.islice(itertools.cycle(BODIES), count)):
        case = drawn_program(rng, name)
        schedule = build_op_plan(case, case.schedules[0].body)
        program = lower(case.system, plan_of(case, schedule), unit_bytes=128, fold=number % 2 == 0).program
        yield f"program {number}, {name}, folded: {number % 2 == 0}", program


def every_core(suite: str, cases: Iterable[Case]) -> Iterator[Figure]:
    """Compare each core with the oracle."""
    tallies = {core: Tally() for core in Core}
    for case, program in cases:
        expected = Oracle(program).run()
        for core, tally in tallies.items():
            found = run(program, core=core, observe=tally.cases % 2 == 0)
            tally.count(f"{suite}, {core.value}, {case}", differences(program, found, expected), expected)
    for core, tally in tallies.items():
        yield from tally.figures(suite, core)


def one_for_all(count: int, seed: int) -> Iterator[Figure]:
    """Collectives described by one rank, against the oracle of all ranks."""
    tally = Tally()
    for kind, algorithm, system, units in random_systems(count, seed + 1):
        if symmetric(kind, algorithm, system):
            folded, whole = (collective(kind, algorithm, system, units, folded=fold) for fold in (True, False))
            found, expected = run(folded), Oracle(whole).run()
            one = times_of(folded, 0, found.op_ready.tolist(), found.op_done.tolist())
            ranks = range(whole.num_ranks)
            wrong = [f"rank {rank}" for rank in ranks if times_of(whole, rank, expected.ready, expected.done) != one]
            tally.count(f"{kind.value}, {algorithm.value}, {system}, {units} units, folded", wrong, expected)
    yield from tally.figures("collectives described by one rank")


def times_of(program: Program, rank: int, ready: list[int], done: list[int]) -> set[tuple[int, int, int]]:
    """(local id, ready, done) of the ops of a rank; joins have no local id."""
    ops = zip(program.op_rank.tolist(), program.op_local_id.tolist(), ready, done, strict=True)
    return {(local_id, begin, end) for of, local_id, begin, end in ops if of == rank and local_id != NONE}


def folds(count: int, seed: int) -> Iterator[Figure]:
    """Ranks found to be alike, simulated once and written out again, against the oracle of all of them."""
    spmd, systems = Tally(), Tally()
    for number in range(seed, seed + count):
        program = perturbed(number, PERTURBATIONS[number % len(PERTURBATIONS)])
        count_fold(spmd, f"fold, seed {number}", program)
    for kind, algorithm, system, units in random_systems(count // 4, seed + 2):
        case = f"fold, {kind.value}, {algorithm.value}, {system}, {units} units"
        count_fold(systems, case, collective(kind, algorithm, system, units))
    yield from spmd.figures(f"random folds ({count - spmd.cases} refused)")
    yield from systems.figures(f"folds of collectives ({count // 4 - systems.cases} refused)")


def count_fold(tally: Tally, case: str, program: Program) -> None:
    """Compare a program's fold with the oracle, unless its ranks are not alike."""
    classes = detect(program)
    if not isinstance(classes, Refusal):
        folded = quotient(program, classes)
        expected = Oracle(program).run()
        tally.count(case, fold_differences(program, expand(folded, run(folded.program)), expected), expected)


def fold_differences(program: Program, found: Run, expected: OracleRun) -> list[str]:
    """What differs, of what folding promises."""
    return [name for name in differences(program, found, expected) if name in OP_LEVEL or not expected.deadlock]


def perturbed(seed: int, perturbation: str) -> Program:
    """A random program of alike ranks, but for the perturbation."""
    spmd, rng = random_spmd(seed)
    return spmd.build(rng, perturbation)


def wrong_on_purpose(count: int, seed: int) -> Iterator[Figure]:
    """How many programs show that the core or the order of ties is wrong; the comparison is worth nothing at 0."""
    seeds = range(seed, seed + count)
    programs = [random_program(number, num_ranks=2) for number in seeds]
    expected = [Oracle(program).run() for program in programs]

    def noticed(core: Core, changed: Sequence[Program]) -> int:
        runs = zip(changed, expected, strict=True)
        return sum(bool(differences(program, run(program, core=core), right)) for program, right in runs)

    with patch.object(windows, "window_ticks", half_as_long_again(windows.window_ticks)):
        yield caught("windows 1.5 times too long", noticed(Core.WINDOWS, programs), count)
    backwards = [with_ties_backwards(program) for program in programs]
    for core in Core:
        yield caught(f"ties served backwards, {core.value}", noticed(core, backwards), count)
    programs = [random_program(number, num_ranks=2, features=ALL) for number in seeds]
    expected = [Oracle(program).run() for program in programs]
    for name, mutant in ONE_TOO_MANY.items():
        yield caught(name, noticed(Core.WINDOWS, [mutant(program) for program in programs]), count)


def wrong_folds(count: int, seed: int) -> Iterator[Figure]:
    """Classes found before something changed: refused, or of no consequence; and what they would do unchecked."""
    refused, tried, unchecked, accepted = 0, 0, 0, Tally()
    for number in range(seed, seed + count):
        classes = detect(perturbed(number, "none"))
        program = perturbed(number, CHANGED_TIMES[number % len(CHANGED_TIMES)])
        if isinstance(classes, Refusal):
            continue
        tried += 1
        expected = Oracle(program).run()
        folded = quotient(perturbed(number, "none"), classes)
        unchecked += bool(fold_differences(program, expand(folded, run(folded.program)), expected))
        try:
            folded = quotient(program, classes)
        except FoldError:
            refused += 1
        else:
            found = expand(folded, run(folded.program))
            accepted.count(f"stale fold, seed {number}", fold_differences(program, found, expected), expected)
    yield caught("stale folds, unchecked", unchecked, tried)
    yield Figure("stale folds, refused by the check", refused, f"of {tried}", "higher", unchecked)
    yield Figure("stale folds that pass the check, mismatches", len(accepted.wrong), f"of {accepted.cases}", "lower", 0)


def caught(what: str, count: int, cases: int) -> Figure:
    """A figure of a mutation."""
    return Figure(f"wrong on purpose: {what}, noticed", count, f"of {cases}", "higher", 1)


def command(argv: Sequence[str] | None = None) -> int:
    """The command line: how many cases and where the seeds begin; the rest is as in all benchmarks."""
    parser = parser_of(__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="random programs with each feature, and random folds")
    parser.add_argument("--seed", type=int, default=0, help="the first")
    given = parser.parse_args(argv)
    tell(measure(given.cases, given.seed), as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(command())
