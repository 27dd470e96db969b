"""Plans whose kernels hold SMs while they wait: what is let through finishes, and what stands still is named."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from magus.compiler.codes import Code
from magus.compiler.ir import (
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    IndexRange,
    Kernels,
    OpCase,
    OpChoice,
    OpPlan,
    Reduction,
    Region,
    Step,
    TileGroup,
    Transfer,
    Wait,
    WrittenPlan,
)
from magus.compiler.planning.build import ScheduleError, build_op_plan, reject_choice
from magus.compiler.templates import ALL_TEMPLATES
from magus.compiler.verify.check import check_plan
from magus.compiler.verify.happens_before import Waits
from magus.simcore import record_writes, simulate_op
from magus.simcore.program.program import RunOutcome
from tests.helpers.scenarios.scenarios import ag_gemm, gemm_rs, h100, switch

DMA = EngineChoice(EngineKind.DMA, 2)
POLLS = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)
COARSE = 1 << 16
SMS = 16
SMALL = replace(h100(), sms=SMS)
AG = ag_gemm(4096, 2048, 128, ranks=2, gpu=SMALL, fabric=switch())
RS = gemm_rs(4096, 2048, 128, ranks=2, gpu=SMALL, fabric=switch())
ROWS, COLS, INNER = 2048, 1024, 128


def written(scenario: OpCase, *steps: Step, tactics: ExecutionOptions = POLLS) -> OpPlan:
    return build_op_plan(scenario, WrittenPlan(DMA, steps, tactics=tactics), "written")


def outcome(scenario: OpCase, schedule: OpPlan) -> RunOutcome:
    return simulate_op(scenario, schedule, unit_bytes=COARSE).outcome


def group(name: str, owner: int, *after: str, stream: int) -> TileGroup:
    return TileGroup(
        name, (Region(owner, IndexRange(0, ROWS), IndexRange(0, COLS)),), IndexRange(0, INNER), after, stream
    )


def put(name: str, region: Region, *after: str) -> Transfer:
    return Transfer(name, Direction.PUT, region, 1, f"s_{name}", after)


REMOTE, OWN = group("remote", 1, "s_x", stream=0), group("own", 0, stream=1)
MOVED = put("x", Region(0, IndexRange(0, ROWS), IndexRange(0, INNER)), "own")


def test_a_group_of_a_later_stream_comes_to_no_sm() -> None:
    schedule = written(AG, REMOTE, OWN, MOVED)

    (fault,) = check_plan(AG, schedule)

    assert fault.code is Code.MGS503 and "remote -> own -> x -> remote" in fault.message
    assert outcome(AG, schedule) is RunOutcome.DEADLOCK
    with pytest.raises(ScheduleError, match="only a run that is done") as caught:
        record_writes(AG, schedule, unit_bytes=COARSE)
    assert caught.value.rejection.code is Code.MGS523


def test_the_order_of_the_streams_is_that_of_their_first_groups() -> None:
    schedule = written(AG, OWN, REMOTE, MOVED)

    assert check_plan(AG, schedule) == ()
    assert outcome(AG, schedule) is RunOutcome.DONE


def test_launched_kernels_wait_for_nothing_but_what_they_need() -> None:
    schedule = written(AG, REMOTE, OWN, MOVED, tactics=ExecutionOptions())

    assert check_plan(AG, schedule) == ()
    assert outcome(AG, schedule) is RunOutcome.DONE


@pytest.mark.parametrize("tactics", [POLLS, ExecutionOptions()], ids=["persistent", "launched"])
def test_a_group_of_a_persistent_kernel_may_begin_before_an_earlier_one_is_done(tactics: ExecutionOptions) -> None:
    rows = (IndexRange(0, 256), IndexRange(256, ROWS))  # whole tiles, and fewer of them than SMs
    first, rest = (
        replace(group(name, 1, stream=0), regions=(Region(1, span, IndexRange(0, COLS)),))
        for name, span in zip(("first", "rest"), rows, strict=True)
    )
    moved = put("x", Region(0, IndexRange(0, ROWS), IndexRange(0, INNER)))
    schedule = written(AG, moved, replace(first, after=("s_x",)), rest, replace(OWN, stream=0), tactics=tactics)

    begun = {each.name: each.start_ticks for each in simulate_op(AG, schedule, unit_bytes=COARSE).timeline.of_rank(0)}
    named = [(fault.code, fault.step) for fault in check_plan(AG, schedule)]

    persistent = tactics is POLLS
    assert (begun["rest"] < begun["first"]) is persistent
    assert named == [(Code.MGS508, "rest")] * persistent


def sums(stream_of_last: int, number: int = 3) -> tuple[Step, ...]:
    """One after the other: what the next sum needs leaves the peer when this one is done there."""
    inner, part = RS.shape.gemm.k if RS.shape.gemm else 0, ROWS // 4
    rows = [IndexRange(index * part, (index + 1) * part) for index in range(4)]
    whole = TileGroup(
        "g", tuple(Region(owner, IndexRange(0, ROWS), IndexRange(0, 2048)) for owner in (1, 0)), IndexRange(0, inner)
    )
    puts = [
        put(f"x{index}", Region(1, rows[index], IndexRange(0, 2048)), "g", *(("r1",) if index == number else ()))
        for index in range(4)
    ]
    reductions = [
        Reduction(f"r{index}", Region(0, rows[index], IndexRange(0, 2048)), 2, ("g", f"s_x{index}"), stream)
        for index, stream in ((0, 0), (3, stream_of_last), (1, 0), (2, 0))
    ]
    return (whole, *puts, *reductions)


def test_a_sum_that_polls_keeps_another_off_its_sms() -> None:
    schedule = written(RS, *sums(stream_of_last=1))

    (fault,) = check_plan(RS, schedule)

    assert fault.code is Code.MGS503 and "x3 -> r3" in fault.message and "holds its SMs" in fault.message
    assert outcome(RS, schedule) is RunOutcome.DEADLOCK


def test_sums_that_need_nothing_of_each_other_may_poll_side_by_side() -> None:
    schedule = written(RS, *sums(stream_of_last=1, number=9))

    assert check_plan(RS, schedule) == ()
    assert outcome(RS, schedule) is RunOutcome.DONE


def drawn(scenario: OpCase, seed: int) -> Iterator[OpPlan]:
    """Plans of templates with persistent kernels, their steps dealt to streams at will, waiting for more, and mixed."""
    rng = random.Random(seed)
    for template in ALL_TEMPLATES:
        choice = OpChoice(template.name, 4 if template.cuts_shards else 2, DMA, 1, POLLS)
        if scenario.shape.pattern in template.patterns and reject_choice(scenario, choice) is None:
            schedule = build_op_plan(scenario, choice)
            yield from (replace(schedule, steps=tuple(mixed(rng, list(schedule.steps)))) for _ in range(8))


def mixed(rng: random.Random, steps: list[Step]) -> list[Step]:
    kernels = [step.name for step in steps if not isinstance(step, Transfer)]
    for index, step in enumerate(steps):
        more = (rng.choice(kernels),) if not isinstance(step, TileGroup) and rng.random() < 0.3 else ()
        after = (*step.after, *(name for name in more if name != step.name and name not in step.after))
        steps[index] = (
            replace(step, after=after)
            if isinstance(step, Transfer)
            else replace(step, after=after, stream=rng.randrange(3))
        )
    rng.shuffle(steps)
    return steps


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "least"), [(AG, 10), pytest.param(RS, 1, marks=pytest.mark.slow)], ids=["AG+GEMM", "GEMM+RS"]
)
def test_what_the_check_lets_through_finishes(scenario: OpCase, least: int) -> None:
    seen: Counter[tuple[bool, RunOutcome]] = Counter()
    for seed in range(4):
        for schedule in drawn(scenario, seed):
            if Waits(scenario, schedule).cycle():
                continue
            held = any(fault.code is Code.MGS503 for fault in check_plan(scenario, schedule))
            seen[held, outcome(scenario, schedule)] += 1

    assert seen[False, RunOutcome.DONE] >= 10 and seen[False, RunOutcome.DEADLOCK] == 0
    assert seen[True, RunOutcome.DEADLOCK] >= least
