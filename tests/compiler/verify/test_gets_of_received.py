"""Gets of what the peer has received or summed: written, checked, told, carried out and simulated."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from magus.advisor.how.code import code_lines
from magus.advisor.how.how import how_of
from magus.advisor.how.words import reported_steps
from magus.compiler import CompileError, compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import Arrival, OpCase, OpPlan, Replay, Transfer, arrivals_at, plan_view
from magus.compiler.planfile.file import plan_in_text
from magus.compiler.planfile.syncopate.write import syncopate_text
from magus.compiler.planfile.write import document_text, op_plan_document, plan_text
from magus.compiler.planning.build import ScheduleError, declared
from magus.compiler.targets.triton import reject_triton
from magus.compiler.verify.check import check_plan
from magus.runtime import carry_out
from magus.runtime.run import job_of_op
from magus.simcore import RunOptions, record_writes, simulate_op
from magus.simcore.cores.engine import Core, run
from magus.simcore.lower.machine import distance_ticks
from magus.simcore.lower.one_kernel import as_kernels
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.lowering import lower_op, lowered_run
from tests.helpers.oracle.oracle import Oracle
from tests.helpers.some import some

LINE = 128
MACHINE = """
use "nvidia/h100"
system quad { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
"""
GATHER = "workload w on quad { x = tensor bf16[64, 256] shard rows; y = all_gather(x) }"
RING = {
    "a": "get y.shard(1) from 1 signal sa",
    "b": "get y.shard(2) from 1 signal sb peer_after sa",
    "c": "get y.shard(3) from 1 signal sc peer_after sb",
}
"""Each from the next one, which got it before."""


def compiled(engine: str = "dma(3)", **steps: str) -> tuple[OpCase, OpPlan]:
    plan = "; ".join(f"{name} = {text}" for name, text in (RING | steps).items() if text)
    text = f"{MACHINE}{GATHER}\nschedule around for w {{ plan by {engine}; {plan} }}\n"
    case = compile_text(text).scenario().case
    return case, declared(case, case.schedules[0])


@pytest.mark.parametrize("engine", ["dma(3)", "dma(1)", "sm(4)"])
def test_a_ring_of_gets_is_exact_and_every_core_gets_what_the_oracle_gets(engine: str) -> None:
    case, plan = compiled(engine)

    assert carry_out(*job_of_op(case, plan), range(3)).exact
    for fold in (True, False):
        program = lower_op(case, plan, unit_bytes=LINE, fold=fold).program
        oracle = Oracle(program).run()
        assert [differences(program, run(program, core=core), oracle) for core in Core] == [[]] * len(Core)


FAN = {"b": "get y.shard(2) from 2 signal sb peer_after sa", "c": "get y.shard(3) from 3 signal sc peer_after sa"}
"""Gets that wait for one thing at different peers: each rank tells two others of it at once."""


@pytest.mark.parametrize("case_and_plan", [lambda: compiled(**FAN), lambda: compiled("sm(4)", **FAN), lambda: summed()])
def test_one_rank_stands_for_all_that_tell_several_others(case_and_plan: Callable[[], tuple[OpCase, OpPlan]]) -> None:
    case, plan = case_and_plan()
    runs = [simulate_op(case, plan, unit_bytes=LINE, options=RunOptions(fold)) for fold in (True, False)]

    assert runs[0].makespan_ticks == runs[1].makespan_ticks


def test_a_get_begins_when_the_flag_of_its_peer_has_been_read() -> None:
    case, plan = compiled()
    for _, there, read in some([("a", "a", "b"), ("b", "b", "c")]):
        lowered, finished = lowered_run(case, plan, LINE)
        ops = {step.step.name: step for step in lowered.steps if step.rank == 0}
        told = int(min(finished.op_ready[ops[read].work])) - int(finished.op_done[ops[there].done])
        hops = distance_ticks(case, -1, 1) + 2 * case.gpu.hbm.latency_ticks

        assert told == pytest.approx(hops, rel=0.05), "over the link, into memory, and a look at it"


WRONG = [
    ({"b": "get y.shard(2) from 1 signal sb"}, Code.MGS508, "b gets what its peer does not own, and does not say when"),
    (
        {"c": "get y.shard(3) from 1 signal sc peer_after sa"},
        Code.MGS508,
        "c uses rows 0:16, columns 0:256 of rank 3's",
    ),
    ({"c": "get y.shard(3) from 1 signal sc peer_after d"}, Code.MGS502, "nobody does 'd'"),
    ({"b": "get y.shard(2) from 1 signal sb peer_after sb"}, Code.MGS503, "these wait for each other: b -> b"),
    ({"b": "get y.shard(2) from 1 signal sb peer_after 3"}, Code.MGS116, "a step or a signal is expected here"),
    ({"a": "put y.shard(0) to 3 signal sa peer_after sb"}, Code.MGS116, "peer_after"),
]


@pytest.mark.parametrize(("steps", "code", "message"), WRONG)
def test_what_a_get_reads_must_be_there(steps: dict[str, str], code: Code, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        compiled(**steps)

    found = caught.value.diagnostics
    assert code in [each.code for each in found] and any(message in each.message for each in found), found


def test_in_a_file_a_get_waits_for_what_its_peer_does() -> None:
    case, plan = compiled()
    document = op_plan_document(case, plan)
    document["plans"][0]["steps"][2] |= {"peer_after": ["d"]}
    del document["hash"]

    with pytest.raises(CompileError) as caught:
        plan_in_text(case, document_text(document), "plan.json")

    assert "c waits for d of its peer, which nothing at rank 1 sets" in str(caught.value)


def test_the_hint_names_what_brings_it_to_the_peer() -> None:
    with pytest.raises(CompileError) as caught:
        compiled(c="get y.shard(3) from 1 signal sc peer_after sa")

    hints = [each.hint for each in caught.value.diagnostics]
    assert hints[0].startswith("add: peer_after sb, which brings rows 0:16")


def test_the_plan_is_the_same_from_its_text_its_json_and_as_a_comm_plan() -> None:
    case, plan = compiled()
    document = op_plan_document(case, plan)
    again = compile_text(MACHINE + GATHER + "\n" + plan_text(case, plan, "written")).scenario().case
    theirs = plan_in_text(case, syncopate_text(case, plan), "plan.py")

    assert declared(again, again.schedules[0]).steps == plan.steps
    assert plan_in_text(case, document_text(document), "plan.json").steps == plan.steps
    assert [step.get("peer_after") for step in document["plans"][0]["steps"]] == [None, ["sa"], ["sb"]]
    assert carry_out(*job_of_op(case, theirs), range(2)).exact
    assert [len(waits_there(step)) for step in theirs.steps] == [0, 1, 1]


def test_a_pull_may_wait_for_a_copy_inside_its_peer() -> None:
    case, plan = compiled()
    text = syncopate_text(case, plan)
    own = 'op=TransferOp.LOCAL_COPY, src_buf="y", src_region=r0, dst_buf="y", dst_region=r0, chunk_idx=1'
    waits = "dependency=[XferDependency(depend_rank=1, depend_xfer_stream=3, depend_xfer_idx=0)]"
    with_copy = text.replace("    ]),\n    2: ", f"        [Transfer({own})],\n    ]),\n    2: ")
    late = with_copy.replace("chunk_idx=1, peer=1)", f"chunk_idx=1, peer=1, {waits})", 1)

    assert len({text, with_copy, late}) == 3
    assert plan_in_text(case, late, "plan.py").steps == plan_in_text(case, text, "plan.py").steps


def test_in_a_file_a_put_waits_for_no_peer() -> None:
    case, plan = compiled()
    document = op_plan_document(case, plan)
    document["plans"][0]["steps"][1] |= {"kind": "put"}
    del document["hash"]

    with pytest.raises(CompileError) as caught:
        plan_in_text(case, document_text(document), "plan.json")

    assert any(
        "b waits for its peer, and a get from one rank alone does" in each.message for each in caught.value.diagnostics
    )


SUM = "workload w on quad { x = tensor bf16[64, 256]; y = all_reduce(x) }"
SUMMED = "; ".join(
    [f"t{p} = get x.shard(0) from {p} signal s{p}" for p in (1, 2, 3)]
    + ["r = reduce x.shard(0) parts 4 after s1, s2, s3"]
    + [f"g{p} = get x.shard({p}) from {p} signal d{p} peer_after r" for p in (1, 2, 3)]
)


def summed(text: str = SUMMED) -> tuple[OpCase, OpPlan]:
    case = compile_text(f"{MACHINE}{SUM}\nschedule own for w {{ plan by sm(4); {text} }}\n").scenario().case
    return case, declared(case, case.schedules[0])


def test_a_sum_of_the_peer_can_be_read() -> None:
    case, plan = summed()

    assert carry_out(*job_of_op(case, plan), range(3)).exact
    program = lower_op(case, plan, unit_bytes=LINE, fold=False).program
    oracle = Oracle(program).run()
    assert [differences(program, run(program, core=core), oracle) for core in Core] == [[]] * len(Core)


def test_a_sum_that_is_not_waited_for_is_told() -> None:
    with pytest.raises(CompileError) as caught:
        summed(SUMMED.replace("signal d2 peer_after r", "signal d2"))

    assert {each.code for each in caught.value.diagnostics} == {Code.MGS508}


def test_gets_of_a_one_shot_sum_that_wait_for_peers_are_no_single_copy() -> None:
    gets = [f"t{b}{p} = get x.shard({b}) from {p} signal s{b}{p}" for b in range(4) for p in (1, 2, 3)]
    sums = [f"r{b} = reduce x.shard({b}) parts 4 after s{b}1, s{b}2, s{b}3" for b in range(4)]
    late = [get + " peer_after s11" * (get[1] == "1" and get[2] != "1") for get in gets]
    (case, free), (_, waiting) = (summed("; ".join(steps)) for steps in (gets + sums, late + sums))

    assert [len(as_kernels(case, plan).steps) for plan in (free, waiting)] == [4, 16]


def test_the_plan_of_a_peer_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    case, plan = compiled()
    made: list[int] = []

    def counted(scenario: OpCase, schedule: OpPlan, rank: int) -> tuple[Arrival, ...]:
        made.append(rank)
        return arrivals_at(scenario, schedule, rank)

    monkeypatch.setattr(plan_view, "arrivals_at", counted)

    assert check_plan(case, replace(plan, by_rank=(plan.steps,) * 4)) == ()
    assert sorted(made) == [0, 1, 2, 3]


def test_no_profile_of_writes_says_when_a_peer_has_what_is_read() -> None:
    case, plan = compiled()
    replayed = replace(case, system=replace(case.system, replay=Replay("profile.csv", ())))

    for refused in (
        lambda: record_writes(case, plan, unit_bytes=LINE),
        lambda: simulate_op(replayed, plan, unit_bytes=LINE),
    ):
        with pytest.raises(ScheduleError, match="b waits for what its peer has, of which a profile of writes says"):
            refused()


def test_the_wait_is_told_in_words_and_has_no_kernel_in_triton() -> None:
    case, plan = compiled()
    how, rejection = how_of(case, plan), reject_triton(*ag_gemm_by_gets())

    assert any("the peer says that it has this" in line.text for line in reported_steps(how))
    assert any("flagged(by=r+1)" in line for line in code_lines(how))
    assert rejection is not None and rejection.message.startswith("b waits for its peer")


def ag_gemm_by_gets() -> tuple[OpCase, OpPlan]:
    """The ring before a GEMM, which waits for all of it."""
    workload = GATHER.replace("}", "; v = tensor bf16[256, 512] shard cols; z = gemm(y, v) }")
    steps = "; ".join(f"{name} = {text}" for name, text in RING.items())
    tiles = "t = compute z.shard(0), z.shard(1), z.shard(2), z.shard(3) after sa, sb, sc"
    case = compile_text(f"{MACHINE}{workload}\nschedule s for w {{ plan by dma(3); {steps}; {tiles} }}").scenario().case
    return case, declared(case, case.schedules[0])


def waits_there(step: object) -> tuple[str, ...]:
    return step.peer_after if isinstance(step, Transfer) else ()
