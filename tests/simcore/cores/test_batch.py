"""Programs simulated side by side come out as they do one by one, tick for tick."""

import random
import sys
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.simcore.cores import batch as lanes
from magus.simcore.cores import batch_windows, engine, sort_keys
from magus.simcore.cores.batch import run_lanes
from magus.simcore.cores.engine import Core, finished_run, run
from magus.simcore.cores.op_scheduler import Control
from magus.simcore.program.builder import ProgramBuilder
from magus.simcore.program.limits import RunBudget
from magus.simcore.program.outcome import Run, RunOutcome, Served, WatchFn
from magus.simcore.program.program import Flow, OpKind, OpSpec, Program, Stage
from tests.helpers.marks import examples
from tests.helpers.oracle.strategies import ALL, PLAIN, Feature, random_program
from tests.helpers.some import some

ABOUT_OPS = {field.name for field in fields(Program) if field.name.startswith(("op_", "stage_", "pool_"))} | {
    "num_ranks",
    "ranks_simulated",
    "unit_bytes",
    "server_names",
    "labels",
    "flow_stage",
    "flow_offset_ticks",
    "flow_traffic",
}


def differing(found: Run, expected: Run) -> list[str]:
    """Names of fields that differ, those left out that say how the run was made."""
    names = [field.name for field in fields(Run) if field.name not in ("core", "windows")]
    return [name for name in names if not np.array_equal(getattr(found, name), getattr(expected, name))]


def assert_as_one_by_one(programs: Sequence[Program], runs: Sequence[Run]) -> None:
    expected = [run(program, core=Core.WINDOWS) for program in programs]
    assert [differing(*pair) for pair in zip(runs, expected, strict=True)] == [[]] * len(programs)


def batch(seed: int, features: Feature = PLAIN) -> list[Program]:
    """Up to ten random programs, some of them delayed, slowed down or without anything to do."""
    rng = random.Random(seed)
    programs = []
    for _ in range(rng.randint(1, 10)):
        program = random_program(rng.randrange(1 << 32), num_ranks=rng.randint(1, 3), features=features)
        if rng.random() < 0.5 and Feature.POLLING not in features:  # a poll through a nap would be made without end
            program = with_naps(program, rng)
        if rng.random() < 0.3:
            program = replace(program, latency_ticks=program.latency_ticks + rng.choice((1, 50, 3000)))
        programs.append(program)
    empty = ProgramBuilder(1, unit_bytes=128).build()
    return [*programs, empty] if rng.random() < 0.2 else programs


def with_naps(program: Program, rng: random.Random) -> Program:
    """The same with long set-ups and late releases of some ops, during which often nothing else happens."""
    naps = np.array([rng.choice((0, 0, 300, 10**5, 10**9)) for _ in range(program.num_ops)], np.int64)
    release = np.where(program.op_num_waits == 0, program.op_release_ticks + naps[::-1], program.op_release_ticks)
    return replace(program, op_setup_ticks=program.op_setup_ticks + naps, op_release_ticks=release)


def never(_line_hops: int, _held_bytes: int = 0, /) -> bool:
    """A watch that lets everything run."""
    return False


def sizes_of_blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Will hold the number of lanes of each run of windows."""
    sizes: list[int] = []
    simulate = batch_windows.simulate

    def noted(programs: Sequence[Program], watch: WatchFn) -> list[tuple[Control, Served]]:
        sizes.append(len(programs))
        return simulate(programs, watch)

    monkeypatch.setattr(batch_windows, "simulate", noted)
    return sizes


def sleeper(naps: int, nap_ticks: int, latency: int = 3) -> Program:
    """A few units now and then, each time after a nap."""
    builder = ProgramBuilder(1, unit_bytes=128)
    route = ((builder.server("a", 2, latency), 0), (builder.server("b", 5, latency), 0))
    last = range(0)
    for _ in range(naps):
        step = builder.op(0, OpSpec(OpKind.TRANSFER, "step", [Stage(0, (Flow(route, 4, 1),))], setup_ticks=nap_ticks))
        builder.after(step, last)
        last = step
    return builder.build()


@examples(10, deep=400)
@given(seed=st.integers(0, 2**32))
def test_equals_single_runs(seed: int) -> None:
    programs = batch(seed)

    runs = run_lanes(programs, core=Core.WINDOWS)

    assert_as_one_by_one(programs, runs)


@examples(12, deep=250)
@given(seed=st.integers(0, 2**32))
def test_any_programs_may_be_put_side_by_side(seed: int) -> None:
    programs = batch(seed)

    runs = [
        finished_run(program, "lanes", *lane)
        for program, lane in zip(programs, batch_windows.simulate(programs, never), strict=True)
    ]

    assert_as_one_by_one(programs, runs)


@examples(4, deep=150)
@given(seed=st.integers(0, 2**32))
def test_programs_with_windows_buffers_and_polls(seed: int) -> None:
    programs = batch(seed, ALL)

    runs = run_lanes(programs, core=Core.WINDOWS)

    for program, found in some(zip(programs, runs, strict=True)):
        expected = run(program, core=Core.HEAP)
        assert (found.outcome, found.stuck) == (expected.outcome, expected.stuck)
        assert np.array_equal(found.op_done, expected.op_done)
        assert expected.outcome is RunOutcome.DEADLOCK or differing(found, expected) == []


def test_order_does_not_matter() -> None:
    programs = batch(5) + batch(6) + batch(7)
    order = random.Random(1).sample(range(len(programs)), len(programs))

    runs = run_lanes(programs, core=Core.WINDOWS)
    permuted = run_lanes([programs[idx] for idx in order], core=Core.WINDOWS)

    assert [differing(found, runs[idx]) for found, idx in zip(permuted, order, strict=True)] == [[]] * len(programs)


@pytest.mark.parametrize("key_bits", [20, 26, 32])
def test_lanes_that_do_not_fit_into_a_key_are_split(monkeypatch: pytest.MonkeyPatch, key_bits: int) -> None:
    monkeypatch.setattr(sort_keys, "KEY_BITS", key_bits)
    monkeypatch.setattr(lanes, "WINDOWS_IN_FIELD", 4)
    tried = sizes_of_blocks(monkeypatch)
    laned = 0
    for seed in range(8):
        programs = batch(seed)

        runs = run_lanes(programs, core=Core.WINDOWS)

        assert_as_one_by_one(programs, runs)
        laned += sum(found.core == "lanes" for found in runs)
    assert sum(tried) > laned > 0  # some were tried in vain


def test_naps_cost_nothing() -> None:
    programs = [sleeper(naps, nap_ticks) for naps, nap_ticks in ((20, 10**6), (20, 10**9), (5, 10**12), (3, 77))]

    runs = run_lanes(programs, core=Core.WINDOWS)

    assert_as_one_by_one(programs, runs)
    alone = [run(program, core=Core.WINDOWS).windows for program in programs]
    assert {found.core for found in runs} == {"lanes"}
    assert runs[0].windows <= 2 * max(alone)


def test_lanes_at_very_different_paces_do_not_share_windows() -> None:
    programs = [sleeper(3, 10, latency) for latency in (1, 1, 10**6, 10**6)]

    runs = run_lanes(programs, core=Core.WINDOWS)

    assert_as_one_by_one(programs, runs)
    assert runs[0].windows == runs[1].windows != runs[2].windows == runs[3].windows


def test_many_programs_run_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MAX_LANES", 4)
    sizes = sizes_of_blocks(monkeypatch)
    programs = [sleeper(1 + idx % 5, 100) for idx in range(13)]

    runs = run_lanes(programs, core=Core.WINDOWS)

    assert sizes == [4, 4, 4]
    assert_as_one_by_one(programs, runs)


def test_stop_leaves_cancelled_runs_and_those_that_were_over() -> None:
    programs = [sleeper(naps, 10) for naps in (1, 600, 700, 5)]
    asked: list[int] = []

    def stop_at_second_look() -> bool:
        asked.append(0)
        return len(asked) == 2

    runs = run_lanes(programs, core=Core.WINDOWS, should_stop=stop_at_second_look)

    assert [found.outcome for found in runs] == [
        RunOutcome.DONE,
        RunOutcome.CANCELLED,
        RunOutcome.CANCELLED,
        RunOutcome.DONE,
    ]
    for program, found in zip(programs, runs, strict=True):
        expected = run(program, core=Core.WINDOWS)
        happened = found.op_done >= 0
        assert np.array_equal(found.op_done[happened], expected.op_done[happened])
        assert 0 < found.line_hops <= expected.line_hops
        served = 8 * int(happened.sum())
        assert served <= found.line_hops <= served + 8


def test_once_stopped_nothing_else_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MAX_LANES", 2)
    answers = iter([True])

    runs = run_lanes([sleeper(4, 10)] * 7, core=Core.WINDOWS, should_stop=lambda: next(answers))

    assert {found.outcome for found in runs} == {RunOutcome.CANCELLED}
    assert sum(found.line_hops for found in runs) == 0


def test_progress_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MAX_LANES", 3)
    told: list[int] = []

    runs = run_lanes([sleeper(9, 10)] * 8, core=Core.WINDOWS, progress=told.append)

    assert told == sorted(told)
    assert told[0] == 0
    assert 0 < told[-1] < sum(found.line_hops for found in runs)


@pytest.mark.parametrize("core", [None, *Core])
def test_every_core_may_be_asked_for(core: Core | None) -> None:
    programs = [sleeper(3, 100), *batch(3)]

    runs = run_lanes(programs, core=core)

    assert_as_one_by_one(programs, runs)
    expected = {None: {"heap"}, Core.WINDOWS: {"lanes", "windows"}}
    assert {found.core for found in runs} <= expected.get(core, {core.value if core else "", "heap"})


def test_large_batches_are_compiled_and_without_numba_they_run_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MIN_LINE_HOPS_COMPILED", 1)
    programs, told = [sleeper(3, 100)] * 3, list[int]()
    compiled = run_lanes(programs, progress=told.append)
    assert {found.core for found in compiled} == {"compiled"}

    for name in ("compiled", "compiled_loop"):
        monkeypatch.delitem(sys.modules, f"magus.simcore.cores.{name}", raising=False)
        monkeypatch.delattr(f"magus.simcore.cores.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)  # it is there and does not load
    told.clear()
    others = run_lanes(programs, progress=told.append)

    assert [differing(*pair) for pair in zip(others, compiled, strict=True)] == [[]] * 3
    assert {found.core for found in others} == {"heap"}
    assert told == sorted(told) and told[-1] <= sum(found.line_hops for found in others)


def test_lanes_over_the_memory_of_a_run_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = [burst(units) for units in (60_000, 61_000, 62_000, 63_000)]
    budget = RunBudget(memory_bytes=12_000_000)
    tried = sizes_of_blocks(monkeypatch)

    runs = run_lanes(programs, core=Core.WINDOWS, budget=budget)

    assert tried == [4, 2, 2]
    assert {found.outcome for found in runs} == {RunOutcome.DONE}
    assert_as_one_by_one(programs, runs)


def burst(units: int) -> Program:
    """All units at once, over two servers, the second of which is slow."""
    builder = ProgramBuilder(1, unit_bytes=128)
    route = ((builder.server("a", 2, 5000), 0), (builder.server("b", 5, 5000), 0))
    builder.op(0, OpSpec(OpKind.TRANSFER, "t", [Stage(0, (Flow(route, units),))]))
    return builder.build()


def test_of_a_stopped_burst_the_units_that_were_served_are_counted() -> None:
    told: list[int] = []

    runs = run_lanes(
        [burst(40_000), burst(50_000)], core=Core.WINDOWS, progress=told.append, should_stop=lambda: len(told) == 4
    )

    assert {found.outcome for found in runs} == {RunOutcome.CANCELLED}
    assert [found.core for found in runs] == ["lanes", "lanes"]
    assert 0 < told[-1] == sum(found.line_hops for found in runs)


def test_lanes_are_used_where_they_pay() -> None:
    thin = [steps(20, 32) for _ in range(40)]

    assert {found.core for found in run_lanes(thin)} == {"lanes"}
    assert "lanes" not in {found.core for found in run_lanes(thin[:3])}  # too few
    assert "lanes" not in {found.core for found in run_lanes([steps(20, 2)] * 40)}  # hardly a unit a flow


def steps(num_steps: int, units: int) -> Program:
    """Transfers one after the other over three servers, folded."""
    builder = ProgramBuilder(8, period=1, unit_bytes=128)
    route = tuple((builder.server(name, 100, 3000), 0) for name in ("out", "link", "in"))
    last = range(0)
    for _ in range(num_steps):
        step = builder.op(0, OpSpec(OpKind.TRANSFER, "step", [Stage(0, (Flow(route, units, 120),))], setup_ticks=2000))
        builder.after(step, last)
        last = step
    return builder.build()


def test_a_batch_of_none_or_one() -> None:
    assert run_lanes([]) == ()
    (found,) = run_lanes([sleeper(3, 10)], core=Core.WINDOWS)
    assert found.core == "windows"


def test_every_array_of_a_program_is_about_units_or_about_ops() -> None:
    assert set(batch_windows.UNIT_FIELDS) | ABOUT_OPS == {field.name for field in fields(Program)}
    assert not set(batch_windows.UNIT_FIELDS) & ABOUT_OPS


def test_side_by_side_renumbers() -> None:
    one, other = sleeper(2, 10), sleeper(3, 10)

    both = batch_windows.side_by_side([one, other])

    assert both.num_servers == 4
    assert both.hop_server.tolist() == [*one.hop_server, *(other.hop_server + 2)]
    assert both.hop_flow.tolist() == [*one.hop_flow, *(other.hop_flow + one.num_flows)]
    assert both.hop_next.tolist() == [
        *one.hop_next,
        *(hop if hop < 0 else hop + one.num_hops for hop in other.hop_next),
    ]
    assert both.flow_first_hop.tolist() == [*one.flow_first_hop, *(other.flow_first_hop + one.num_hops)]
