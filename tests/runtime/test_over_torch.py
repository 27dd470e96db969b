"""Plans over torch.distributed: each rank, a process of its own, has what it should; wrong plans are found out."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from magus.compiler.ir import OpCase, OpPlan, PartWait, Pattern, Step, Transfer
from magus.compiler.planfile.write import document_text, op_plan_document
from magus.compiler.resolve.schedules.from_text import SERIAL, resolve_schedule
from magus.runtime import Outcome, RunRefused, carry_out
from magus.runtime.over_torch import launch
from magus.runtime.over_torch.launch import RankFailed, carry_out_over_torch
from magus.runtime.run import Job, job_of_op
from tests.compiler.verify.test_gets_of_received import FAN, summed
from tests.compiler.verify.test_gets_of_received import compiled as around
from tests.helpers.paths import DOCS, ROOT
from tests.helpers.plans.wrong_plans import changed
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of
from tests.helpers.scenarios.mlp_backward import backward, plan_of_layers
from tests.helpers.scenarios.ulysses import ulysses
from tests.helpers.scenarios.workloads import workload_of
from tests.helpers.some import some
from tests.runtime.test_wrong_layers import changed as changed_part
from tests.runtime.test_wrong_layers import dropped, side_by_side
from tests.runtime.test_wrong_plans import harms

pytest.importorskip("torch", reason="the extra torch is not installed")

TILES = "engine=sm(tiles), kernel=persistent, wait=poll)"
PLANS = (
    (Pattern.AG_GEMM, "hetero_fused_1d(chunks={2n}, engine=sm(8))"),
    (Pattern.AG_GEMM, "uniform_fused_2d(chunks={2n}, engine=sm(8), transfer=get)"),
    (Pattern.AG_GEMM, "bespoke(parts=[[64, 32], [0, 32]], slices=[[], [128, 128]], engine=dma(3), streams=2, lanes=3)"),
    (Pattern.GEMM_RS, "pipelined(chunks={n}, engine=dma(2))"),
    (Pattern.GEMM_RS, "pipelined(chunks={2n}, algorithm=nvls, " + TILES),
    (Pattern.GEMM_AR, "uniform_fused_1d(chunks={2n}, engine=sm(8))"),
    (Pattern.GEMM_AR, "bespoke(" + TILES),
    (Pattern.GEMM_A2A_GEMM, "hetero_fused_1d(chunks={2n}, engine=dma(3))"),
    (Pattern.ALL_GATHER, "ring(chunks={n}, engine=sm(8))"),
    (Pattern.ALL_REDUCE, "ring(chunks={n}, engine=sm(8))"),
    (Pattern.ALL_REDUCE, "one_shot(chunks={n}, engine=dma(2))"),
    (Pattern.BROADCAST, "direct(chunks={n}, engine=dma(2))"),
)
ATTENTION = (
    ("AG+attention", "shard_p2p(engine=dma(3))"),
    ("AG+attention", "uniform_fused_2d(chunks={2n}, engine=sm(8), transfer=get)"),
    ("A2A+attention", "uniform_fused_2d(chunks={2n}, engine=dma(3))"),
    ("attention+A2A", "hetero_fused_1d(chunks={2n}, engine=dma(3))"),
    ("attention+A2A+GEMM", "uniform_fused_1d(chunks={2n}, engine=sm(8))"),
)
SMALL = (Pattern.ALL_GATHER, 2, "direct(chunks=2, engine=dma(1))")


def scheduled(pattern: Pattern, ranks: int, expression: str) -> tuple[OpCase, OpPlan]:
    return resolved(scenario_of(pattern, SYSTEMS[0], ranks, ranks * 64, ranks * 64, 256), expression)


def resolved(scenario: OpCase, expression: str) -> tuple[OpCase, OpPlan]:
    ranks = scenario.num_ranks
    text = expression.replace("{2n}", str(2 * ranks)).replace("{n}", str(ranks))
    return scenario, resolve_schedule(scenario, text)


def of_attention(name: str, ranks: int, expression: str) -> tuple[OpCase, OpPlan]:
    return resolved(workload_of(name, ranks, ranks * 32, 8), expression)


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_every_rank_has_what_the_serial_computation_gives(ranks: int) -> None:
    jobs = [job_of_op(*scheduled(pattern, ranks, expression)) for pattern, expression in PLANS]
    jobs += [job_of_op(*of_attention(name, ranks, expression)) for name, expression in ATTENTION]
    reports = carry_out_over_torch(jobs, range(2))

    assert [(report.schedule, report.runs[-1]) for report in reports if not report.exact] == []
    assert [len(report.runs) for report in reports] == [2] * len(jobs)


def test_gets_of_what_a_peer_has_received_or_summed_wait_for_it() -> None:
    case, plan = around()
    early = replace(plan, steps=tuple(dropped_peers(step) for step in plan.steps))
    lost = replace(plan, steps=tuple(dropped_peers(step, "nowhere") for step in plan.steps))
    right = [job_of_op(*each) for each in ((case, plan), around("sm(4)"), around(**FAN), summed())]
    reports = carry_out_over_torch([*right, job_of_op(case, early), job_of_op(case, lost)], range(2))

    assert [report.exact for report in reports] == [True] * len(right) + [False] * 2
    unread, stuck = (report.runs[-1] for report in reports[-2:])
    assert unread.outcome is Outcome.FAULT and "which nothing has written yet" in unread.sentences[0]
    assert stuck.outcome is Outcome.DEADLOCK and "waits for nowhere, which nothing sets" in stuck.sentences[0]


def dropped_peers(step: Step, *names: str) -> Step:
    """``step`` that waits for ``names`` at its peer instead."""
    return replace(step, peer_after=names) if isinstance(step, Transfer) and step.peer_after else step


@pytest.mark.slow
def test_every_harmful_change_is_found_and_no_other() -> None:
    wrong = [
        (scenario, other, what)
        for scenario, schedule in (
            *(scheduled(pattern, 2, expression) for pattern, expression in (PLANS[0], PLANS[3], PLANS[9])),
            *(of_attention(name, 2, expression) for name, expression in (ATTENTION[0], ATTENTION[4])),
        )
        for what, other in changed(schedule, 2)
    ]
    reports = carry_out_over_torch([job_of_op(scenario, other) for scenario, other, _ in wrong])
    found = [
        (what, harms(scenario, other), report.runs[-1])
        for (scenario, other, what), report in zip(wrong, reports, strict=True)
    ]

    assert [(what, run) for what, harmful, run in found if harmful is (run.outcome is Outcome.EXACT)] == []
    assert {run.outcome for _, _, run in found} == set(Outcome)


def test_a_deadlock_and_a_missing_wait_are_named_over_torch() -> None:
    scenario, schedule = scheduled(Pattern.AG_GEMM, 2, "shard_p2p(engine=dma(1))")
    lost = changed_step(schedule, "g1", ("nowhere",))
    early = changed_step(schedule, "g1", ())
    stuck, unordered = (
        report.runs[-1] for report in carry_out_over_torch([job_of_op(scenario, lost), job_of_op(scenario, early)])
    )

    assert (stuck.outcome, unordered.outcome) == (Outcome.DEADLOCK, Outcome.FAULT)
    assert stuck.sentences == tuple(f"rank {rank}: g1 waits for nowhere, which nothing sets" for rank in range(2))
    assert unordered.sentences[0].partition(": ")[2].startswith("g1 reads rows 0:64, columns 0:256 of block ")


def layers(ranks: int) -> list[Job]:
    """Layers with kernels and collectives in parts of their own, waits for rows, sums, and memory that is freed."""
    back, attention = backward(m=128 * ranks, ranks=ranks), ulysses(ranks=ranks)
    choices = [(back, choice) for choice in (*back.schedules, SERIAL)]
    choices += [(attention, choice) for choice in attention.schedules]
    return [(scenario.system, *plan_of_layers(scenario, choice, 2)) for scenario, choice in choices]


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_plans_of_several_parts_are_exact(ranks: int) -> None:
    jobs = layers(ranks)
    reports = carry_out_over_torch(jobs, range(2))

    assert [(report.schedule, report.runs[-1]) for report in reports if not report.exact] == []
    assert [report.layers for report in reports] == [2] * len(jobs)


def test_waits_for_other_parts_that_are_wrong_are_found() -> None:
    back = backward(m=256, ranks=2)
    graph, serial = plan_of_layers(back, SERIAL, 1)
    circle = changed_part(serial, "dh", waits=(PartWait("du"),))
    early = changed_part(side_by_side(serial), "du", waits=())
    order = [serial.part(name) for name in ("dh", "du", "d_wdn", "dx", "xg", "d_wup")]
    freed = changed_part(replace(serial, parts=tuple(order)), "d_wdn", waits=(PartWait("du"),))
    jobs = [(back.system, graph, plan) for plan in (circle, early, freed)]
    stuck, unmade, free = (report.runs[-1] for report in carry_out_over_torch(jobs, range(1)))

    assert stuck == carry_out(*jobs[0], range(1)).runs[-1]
    assert stuck.outcome is Outcome.DEADLOCK and len(stuck.sentences) == 2
    assert unmade.outcome is Outcome.FAULT and ": du.g0 reads rows " in unmade.sentences[0]
    assert free.outcome is Outcome.FAULT and "free again by then" in free.sentences[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pairs", "late"])
def test_a_wait_for_another_part_that_is_left_out_is_found(name: str) -> None:
    back = backward(m=256, ranks=2)
    choice = {each.name: each for each in back.schedules}[name]
    graph, plan = plan_of_layers(back, choice, 2)
    cases = dropped(side_by_side(plan))
    jobs = [(back.system, graph, without) for _, _, without in cases]
    reports = carry_out_over_torch(jobs, range(1))

    assert len(cases) > 6
    assert [report.exact for report in reports] == [carry_out(*job).exact for job in jobs]


def changed_step(schedule: OpPlan, name: str, after: tuple[str, ...]) -> OpPlan:
    steps = tuple(replace(step, after=after) if step.name == name else step for step in schedule.steps)
    return replace(schedule, steps=steps)


def test_a_process_that_is_killed_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    wait_for = launch._wait_for

    def kill_one(processes: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
        started.extend(processes)
        processes[1].kill()
        wait_for(processes, folder)

    monkeypatch.setattr(launch, "_wait_for", kill_one)
    with pytest.raises(RankFailed, match="rank 1 ended with -9"):
        carry_out_over_torch([job_of_op(*scheduled(*SMALL))])

    assert all(process.returncode is not None for process in some(started))


def test_ctrl_c_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def interrupt(processes: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
        started.extend(processes)
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "_wait_for", interrupt)
    with pytest.raises(KeyboardInterrupt):
        carry_out_over_torch([job_of_op(*scheduled(*SMALL))])

    assert all(process.returncode is not None for process in some(started))


def test_what_is_refused_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(subprocess, "Popen")
    scenario = scenario_of(Pattern.KERNEL, SYSTEMS[0], 2, 128, 128, 128)
    with pytest.raises(RunRefused) as refused:
        carry_out_over_torch([job_of_op(scenario, resolve_schedule(scenario, None))])

    assert refused.value.rejection.code.name == "MGS540"


def by_torchrun(processes: int, *words: str, module: bool = True) -> subprocess.CompletedProcess[str]:
    start = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run(
        [*start, *(["-m", "magus.runtime.over_torch"] if module else []), *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.slow
def test_torchrun_carries_out_a_plan_in_a_file(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(document_text(op_plan_document(*scheduled(Pattern.GEMM_RS, 2, PLANS[3][1]))))
    done = by_torchrun(2, str(plan))

    assert (done.returncode, done.stdout) == (0, f"{plan}\n  exact on 2 ranks\n")


@pytest.mark.slow
def test_another_number_of_processes_is_an_error() -> None:
    done = by_torchrun(2, str(DOCS / "plans" / "direct.json"))

    assert done.returncode == 1
    assert "magus: the plan is for 4 ranks, and 2 processes are here; say --nproc-per-node 4" in done.stderr


@pytest.mark.slow
def test_the_example_of_two_layers_agrees_with_plain_collectives() -> None:
    done = by_torchrun(2, str(ROOT / "examples" / "runtimes" / "pytorch_layers.py"), module=False)

    assert done.returncode == 0, done.stderr
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("rank")) == [
        f"rank {rank}: (128, 128) as with plain collectives" for rank in range(2)
    ]
