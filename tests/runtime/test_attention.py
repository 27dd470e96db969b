"""Attention beside a collective, carried out: exact in every order of keys, and each key counts once for each query."""

from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest

from magus.compiler.codes import Code
from magus.compiler.ir import (
    AttentionBackShape,
    AttentionShape,
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    IndexRange,
    OpCase,
    OpChoice,
    OpPlan,
    Pattern,
    TileGroup,
)
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from magus.compiler.templates import ALL_TEMPLATES
from magus.compiler.verify.check import check_plan
from magus.runtime import Outcome, RunRefused, carry_out
from magus.runtime.memory import Array, attend
from magus.runtime.operands import MOVED_IN
from magus.runtime.problem import Problem
from magus.runtime.report import SeedRun
from magus.runtime.run import PlanRun, job_of_op
from tests.helpers.plans.wrong_plans import changed
from tests.helpers.scenarios.workloads import TEXTS, workload_of
from tests.helpers.some import some
from tests.runtime.test_wrong_plans import harms

NAMES = tuple(name for name in TEXTS if "attention" in name)
ENGINES = (EngineChoice(EngineKind.DMA, 3), EngineChoice(EngineKind.SM, 8))


def scheduled(name: str, expression: str, ranks: int = 2) -> tuple[OpCase, OpPlan]:
    scenario = workload_of(name, ranks, 32 * ranks, 8)
    return scenario, resolve_schedule(scenario, expression)


def written(scenario: OpCase) -> Iterator[OpPlan]:
    """Every template, by copy engines and by SMs, put and got, with one stream and with two."""
    n = scenario.num_ranks
    for template, count, engine, direction in product(ALL_TEMPLATES, (1, 2), ENGINES, Direction):
        for streams in {template.default_streams, 2}:
            choice = OpChoice(template.name, n * count, engine, streams, ExecutionOptions(direction))
            if reject_choice(scenario, choice) is None:
                yield build_op_plan(scenario, choice)


def last_run(scenario: OpCase, schedule: OpPlan) -> SeedRun:
    return carry_out(*job_of_op(scenario, schedule)).runs[-1]


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", NAMES)
def test_every_template(name: str) -> None:
    scenario = workload_of(name, 2, 64, 16)
    chosen = {schedule.expression.partition("(")[0]: schedule for schedule in written(scenario)}
    for schedule in some(chosen.values()):
        assert last_run(scenario, schedule).outcome is Outcome.EXACT, schedule.expression
    assert {"serial", "uniform_fused_2d"} <= chosen.keys()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "ranks"), list(product(NAMES, (2, 4, 8))))
def test_every_template_by_put_and_get_by_engines_and_by_sms(name: str, ranks: int) -> None:
    scenario = workload_of(name, ranks, 32 * ranks, 8)
    runs = {schedule.expression: last_run(scenario, schedule) for schedule in written(scenario)}

    assert [each for each in runs.items() if each[1].outcome is not Outcome.EXACT] == []
    assert len(runs) >= 8


@pytest.mark.parametrize(
    ("name", "expression"),
    [
        ("AG+attention", "bespoke(parts=[[16, 8], [16, 8], [0, 16]], engine=dma(3), streams=1)"),
        ("AG+attention", "bespoke(parts=[[32, 32]], slices=[[16, 48]], engine=dma(3), streams=1)"),
        ("AG+attention", "pipelined(chunks=4, engine=dma(3), algorithm=ring)"),
        ("attention+A2A", "bespoke(parts=[[16, 8], [16, 24]], engine=dma(3), streams=1)"),
        ("attention+A2A", "bespoke(parts=[[32, 32]], columns=[[16, 48]], engine=sm(8))"),
    ],
)
def test_parts_of_any_size_and_slices_of_heads(name: str, expression: str) -> None:
    assert last_run(*scheduled(name, expression)).outcome is Outcome.EXACT


QUICK = (
    ("AG+attention", 2, "shard_p2p(engine=dma(3))"),
    ("AG+attention", 2, "uniform_fused_1d(chunks=4, engine=sm(8))"),
    ("AG+attention", 3, "hetero_unfused_1d(chunks=3, engine=dma(3), streams=1)"),
    ("AG+attention", 2, "uniform_fused_2d(chunks=4, engine=dma(3))"),
    ("A2A+attention", 2, "uniform_fused_2d(chunks=4, engine=dma(3))"),
    ("attention+A2A", 2, "hetero_fused_1d(chunks=4, engine=dma(3))"),
    ("attention+A2A+GEMM", 2, "hetero_fused_1d(chunks=4, engine=sm(8))"),
)
SLOW = (
    ("AG+attention", 4, "pipelined(chunks=8, engine=sm(8), algorithm=ring)"),
    ("AG+attention", 4, "uniform_fused_2d(chunks=8, engine=sm(8), transfer=get)"),
    ("A2A+attention", 4, "serial(engine=sm(8))"),
    ("attention+A2A", 4, "uniform_fused_2d(chunks=8, engine=sm(8))"),
    ("attention+A2A+GEMM", 4, "hetero_unfused_1d(chunks=8, engine=dma(3), streams=1)"),
)


def keys_changed(schedule: OpPlan) -> Iterator[tuple[str, OpPlan]]:
    """Kernels that take keys of another block, keys twice, or other heads."""
    for place, step in enumerate(schedule.steps):
        if not isinstance(step, TileGroup):
            continue
        first, half = step.regions[0], IndexRange(0, step.k.stop // 2)
        turned = replace(first, owner=(first.owner + 1) % 2)
        others = {
            "of another block": (replace(step, regions=(turned, *step.regions[1:])),),
            "twice": (step, replace(step, name=f"{step.name}_again", accumulate=True)),
            "with rows twice": (replace(step, regions=(first, *step.regions)),),
            "of half the heads": (replace(step, k=half),),
        }
        for what, steps in others.items():
            changes = (*schedule.steps[:place], *steps, *schedule.steps[place + 1 :])
            yield f"{step.name} {what}", replace(schedule, steps=changes)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("name", "ranks", "expression"), [*QUICK, *(pytest.param(*one, marks=pytest.mark.slow) for one in SLOW)]
)
def test_every_harmful_change_is_found_and_no_other(name: str, ranks: int, expression: str) -> None:
    scenario, schedule = scheduled(name, expression, ranks)
    found = [(what, harms(scenario, other), last_run(scenario, other)) for what, other in changed(schedule, ranks)]

    assert [(what, run) for what, harmful, run in found if harmful is (run.outcome is Outcome.EXACT)] == []
    assert sum(harmful is True for _, harmful, _ in found) > 10


@pytest.mark.parametrize(("name", "ranks", "expression"), [one for one in QUICK[:5] if one[1] == 2])
def test_keys_that_are_wrong_or_count_twice_are_found(name: str, ranks: int, expression: str) -> None:
    scenario, schedule = scheduled(name, expression, ranks)
    for what, other in some(keys_changed(schedule)):
        faults = check_plan(scenario, other)
        assert bool(faults) is (last_run(scenario, other).outcome is not Outcome.EXACT), (what, faults)


def test_keys_that_are_added_in_no_order_are_named() -> None:
    scenario, schedule = scheduled("AG+attention", "shard_p2p(engine=dma(3))", 3)
    steps = tuple(
        replace(step, stream=place) if isinstance(step, TileGroup) else step
        for place, step in enumerate(schedule.steps)
    )
    run = last_run(scenario, replace(schedule, steps=steps))

    assert run.outcome is Outcome.FAULT
    assert "of block 0 of y, " in run.sentences[0], run.sentences
    assert run.sentences[0].endswith(("in no order", "which nothing has written yet"))


def test_a_kernel_that_cuts_a_head_is_named() -> None:
    scenario, schedule = scheduled("AG+attention", "serial(engine=dma(3))")
    steps = tuple(replace(step, k=IndexRange(0, 8)) if isinstance(step, TileGroup) else step for step in schedule.steps)
    run = last_run(scenario, replace(schedule, steps=steps))

    assert (run.outcome, run.sentences) == (
        Outcome.FAULT,
        ("g0 takes columns 0:8 and cuts a head of keys, which is 16 columns",),
    )


def test_a_key_that_comes_too_early_is_named() -> None:
    scenario, schedule = scheduled("AG+attention", "shard_p2p(engine=dma(3))")
    steps = tuple(replace(step, after=()) if step.name == "g1" else step for step in schedule.steps)
    run = last_run(scenario, replace(schedule, steps=steps))

    assert run.outcome is Outcome.FAULT
    assert ": g1 reads rows 0:32, columns 0:" in run.sentences[0]
    assert " of kv_gathered, " in run.sentences[0]


def plainly(q: Array, k: Array, v: Array, per_key: int, size: int) -> Array:
    """Query by query and head by head, as the text of ``runtime/memory.py`` says."""
    made = np.zeros_like(q)
    for row, head in product(range(len(q)), range(q.shape[1] // size)):
        own = slice(size * head, size * (head + 1))
        theirs = slice(size * (head // per_key), size * (head // per_key + 1))
        for key, value in zip(k[:, theirs], v[:, theirs], strict=True):
            made[row, own] += 2.0 ** (int(q[row, own] @ key) % 4) * (value + 5)
    return made


def problem_of(name: str) -> tuple[Problem, AttentionShape]:
    """Every row and column of a small scenario: 2 ranks, 4 rows each, 8 heads of 4 columns and 4 of keys."""
    scenario = workload_of(name, 2, 8, 4, uneven=False)
    schedule = resolve_schedule(scenario, "serial(engine=dma(1))")
    shape = scenario.shape.stage(0).compute
    assert isinstance(shape, AttentionShape)
    (problem,) = PlanRun(*job_of_op(scenario, schedule), seed=3, detail=None).problems.values()
    return problem, shape


def unpacked(x: Array, size: int, queries: int) -> tuple[Array, Array, Array]:
    """Columns of queries, keys and values, which lie head of keys by head of keys."""
    pieces = [x[:, start : start + size] for start in range(0, x.shape[1], size)]
    of_key = [pieces[start : start + queries + 2] for start in range(0, len(pieces), queries + 2)]
    q = [piece for group in of_key for piece in group[:queries]]
    k, v = ([group[queries + each] for group in of_key] for each in range(2))
    return np.hstack(q) if q else np.zeros((len(x), 0)), np.hstack(k), np.hstack(v)


def test_gathered_keys_are_those_of_plain_numpy() -> None:
    problem, shape = problem_of("AG+attention")
    every = np.vstack([problem.slots[MOVED_IN].wanted(rank)[rank] for rank in range(2)])
    _, k, v = unpacked(every, shape.head_dim, 0)
    for expected in some([*problem.expected(0), *problem.expected(1)]):
        q = problem.slots[0, 0].wanted(expected.rank)[0]
        assert np.array_equal(expected.wanted, plainly(q, k, v, 2, shape.head_dim))


def test_heads_that_an_all_to_all_brings_are_those_of_plain_numpy() -> None:
    problem, shape = problem_of("A2A+attention")
    for expected in some([*problem.expected(0), *problem.expected(1)]):
        packed = [problem.slots[MOVED_IN].wanted(source)[expected.rank] for source in range(2)]
        q, k, v = unpacked(np.vstack(packed), shape.head_dim, 2)
        wanted = plainly(q, k, v, 2, shape.head_dim)
        assert np.array_equal(expected.wanted, wanted[4 * expected.block : 4 * expected.block + 4])


@pytest.mark.parametrize("name", ["attention+A2A", "attention+A2A+GEMM"])
def test_what_an_all_to_all_takes_is_that_of_plain_numpy(name: str) -> None:
    problem, shape = problem_of(name)
    for rank in range(2):
        packed = np.vstack(list(problem.slots[0, 0].wanted(rank)))
        wanted = plainly(*unpacked(packed, shape.head_dim, 2), 2, shape.head_dim)
        assert np.array_equal(np.vstack(list(problem._held_first(rank))), wanted)


def test_each_key_counts_once_in_every_number() -> None:
    rng = np.random.default_rng(1)
    q, kv = (rng.integers(-4, 5, size).astype(float) for size in ((6, 3 * 2 * 2), (10, 3 * 2 * 2)))

    def of(keys: Array) -> Array:
        return attend(q, [keys], 3, 2, 2, np.matmul)

    whole = of(kv)
    assert np.array_equal(of(kv[::-1]), whole)
    assert np.array_equal(of(kv[:3]) + of(kv[3:]), whole)
    for key in range(10):
        assert (of(np.delete(kv, key, axis=0)) < whole).all()
        assert (of(np.vstack([kv, kv[key]])) > whole).all()


@pytest.mark.parametrize("name", ["AG+attention", "attention+A2A"])
def test_all_rows_and_columns_where_they_are_few(name: str) -> None:
    scenario, schedule = scheduled(name, "hetero_fused_1d(chunks=4, engine=dma(3))")

    assert carry_out(*job_of_op(scenario, schedule), detail=None).exact


def test_attention_alone_and_its_backward_pass_are_refused() -> None:
    scenario, schedule = scheduled("AG+attention", "serial(engine=dma(3))")
    workload = scenario.shape
    assert isinstance(workload.compute, AttentionShape)
    shape = workload.compute
    words = {field.name: getattr(shape, field.name) for field in fields(shape)}
    lone = replace(workload, pattern=Pattern.KERNEL, moved=None)
    back = replace(workload, kernel=AttentionBackShape(**words))
    for refused, name in ((lone, "attention alone"), (back, "attention_back")):
        with pytest.raises(RunRefused) as caught:
            carry_out(*job_of_op(replace(scenario, shape=refused), schedule))
        rejection = caught.value.rejection
        assert rejection.code is Code.MGS540
        assert rejection.message == f"one computes {name}, which is not carried out with real data"
        assert "attention" in rejection.hint
