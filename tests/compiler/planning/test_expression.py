"""Tactics, modes of engines and algorithms: written, printed, read again, and refused where a machine lacks them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler import CompileError, compile_text, format_text
from magus.compiler.ir import (
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    Kernels,
    LaunchMode,
    OpCase,
    OpChoice,
    Pattern,
    Wait,
    WaitPer,
)
from magus.compiler.planfile.write import plan_text
from magus.compiler.planning.build import (
    ScheduleError,
    build_op_plan,
    declared,
    expression_of,
    non_default_options,
    options_from,
    reject_choice,
    words_of,
)
from magus.compiler.resolve.schedules.from_text import read_choice
from tests.helpers.marks import examples

HEAD = """use "nvidia/h100"
link wide extends nvlink { protocols simple, ll, ll128 }
gpu Waker extends H100 { sync { monitor_wake 100 ns; monitor_entries 64 } }
system s { gpus 4 x Waker; fabric switch(nvswitch, link=wide) }
link old extends nvlink { protocols simple, ll }
system plain { gpus 4 x H100; fabric ring(old) }
"""
GATHER = (
    "{ x = tensor bf16[512, 1024] shard rows; w = tensor bf16[1024, 2048] shard cols; y = gemm(all_gather(x), w) }\n"
)
TEXT = f"{HEAD}workload w on s {GATHER}workload v on plain {GATHER}"
SM, DMA = EngineChoice(EngineKind.SM, 16), EngineChoice(EngineKind.DMA, 3)

engines = st.sampled_from(
    [
        DMA,
        EngineChoice(EngineKind.DMA, 2, EngineMode.PRELAUNCHED),
        EngineChoice(EngineKind.DMA, 3, EngineMode.BROADCAST),
        SM,
        EngineChoice(EngineKind.SM, 8, EngineMode.SHARED),
    ]
)
tactics = st.builds(
    ExecutionOptions,
    *(st.sampled_from(kind) for kind in (Direction, CopyProtocol, Kernels, Wait, WaitPer, LaunchMode)),
    st.sampled_from([(), (64, 256), (128, 128)]),
)


@pytest.fixture(scope="module")
def waker() -> OpCase:
    return compile_text(TEXT).scenario("w").case


@pytest.fixture(scope="module")
def plain() -> OpCase:
    return compile_text(TEXT).scenario("v").case


@given(engine=engines, tactics=tactics, algorithm=st.sampled_from(["", "ring", "nvls"]))
@examples(60)
def test_an_expression_is_read_as_what_was_printed(
    waker: OpCase, engine: EngineChoice, tactics: ExecutionOptions, algorithm: str
) -> None:
    for template, chunks, streams, name in (("serial", 4, 1, algorithm), ("hetero_unfused_1d", 16, 4, "")):
        choice = OpChoice(template, chunks, engine, streams, tactics, name)

        assert read_choice(waker, expression_of(choice)) == choice


@given(engine=engines, tactics=tactics)
@examples(40)
def test_a_plan_is_read_as_what_was_printed(waker: OpCase, engine: EngineChoice, tactics: ExecutionOptions) -> None:
    try:
        schedule = build_op_plan(waker, OpChoice("shard_p2p", 4, engine, 1, tactics))
    except ScheduleError:
        return
    text = TEXT + plan_text(waker, schedule, "written")

    again = compile_text(text).scenario("w").case
    written = declared(again, again.schedules[0])

    assert (written.engine, written.tactics, written.steps) == (schedule.engine, schedule.tactics, schedule.steps)
    assert format_text(format_text(text)) == format_text(text)


def test_what_is_usual_is_not_printed() -> None:
    assert non_default_options(ExecutionOptions()) == ()
    assert non_default_options(options_from({"kernel": "persistent"})) == (("kernel", "persistent"),)
    assert non_default_options(ExecutionOptions(kernel=Kernels.PERSISTENT)) == (
        ("kernel", "persistent"),
        ("wait", "event"),
    )
    told = options_from({"kernel": "persistent", "tile": [64, 256]})
    assert told == ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL, tile=(64, 256))
    assert non_default_options(told) == (("kernel", "persistent"), ("tile", "[64, 256]"))
    split = options_from({"kernel": "persistent", "split_k": 2})
    assert split.split_k == 2 and non_default_options(split) == (("kernel", "persistent"), ("split_k", "2"))
    choice = OpChoice("serial", 4, SM, tactics=ExecutionOptions(Direction.GET, CopyProtocol.LL), algorithm="direct")
    assert expression_of(choice) == "serial(engine=sm(16), algorithm=direct, transfer=get, protocol=ll)"
    assert options_from({"kernel": "persistent"}).wait is Wait.POLL


@pytest.mark.parametrize(
    ("engine", "tactics", "code"),
    [
        (DMA, ExecutionOptions(protocol=CopyProtocol.LL), "MGS408"),
        (SM, ExecutionOptions(protocol=CopyProtocol.LL128), "MGS408"),
        (EngineChoice(EngineKind.SM, 8, EngineMode.PRELAUNCHED), ExecutionOptions(), "MGS407"),
        (EngineChoice(EngineKind.DMA, 2, EngineMode.SHARED), ExecutionOptions(), "MGS407"),
        (SM, ExecutionOptions(wait=Wait.POLL), "MGS513"),
        (SM, ExecutionOptions(per=WaitPer.TILE), "MGS513"),
        (SM, ExecutionOptions(kernel=Kernels.PERSISTENT), "MGS513"),
        (SM, ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.MONITOR), "MGS410"),
        (SM, ExecutionOptions(kernel=Kernels.SHARING), "MGS513"),
        (SM, ExecutionOptions(tile=(128, 128)), "MGS513"),
        (SM, ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL, tile=(128, 96)), "MGS513"),
        (SM, ExecutionOptions(split_k=2), "MGS513"),
        (SM, ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL, split_k=5), "MGS513"),
        (SM, ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL, split_k=32), "MGS513"),
        (SM, ExecutionOptions(kernel=Kernels.SHARING, wait=Wait.POLL), "MGS513"),
    ],
)
def test_what_a_machine_has_not_got(plain: OpCase, engine: EngineChoice, tactics: ExecutionOptions, code: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        build_op_plan(plain, OpChoice("shard_p2p", 4, engine, 1, tactics))

    assert caught.value.rejection.code.name == code and caught.value.rejection.hint


def test_kernels_share_the_sms_of_several_streams_where_a_library_has_their_tiles(plain: OpCase) -> None:
    gpu, tactics = plain.gpu, ExecutionOptions(kernel=Kernels.SHARING)
    fewer = replace(gpu, gemm=replace(gpu.gemm, fewest_sms=8))
    scenario = replace(plain, system=replace(plain.system, gpu=fewer))
    several, one = (OpChoice("hetero_unfused_1d", 8, SM, streams, tactics) for streams in (3, 1))

    whole, streams = reject_choice(plain, several), reject_choice(scenario, one)

    assert whole is not None and "no library that picks tiles for some of the SMs" in whole.message
    assert streams is not None and streams.hint == "say streams=8"
    assert build_op_plan(scenario, several).expression.endswith("streams=3, kernel=sharing)")


def test_what_a_machine_has_got(waker: OpCase) -> None:
    tactics = ExecutionOptions(
        Direction.PUT, CopyProtocol.LL128, Kernels.PERSISTENT, Wait.MONITOR, WaitPer.TILE, LaunchMode.GRAPH
    )
    shared = EngineChoice(EngineKind.SM, 16, EngineMode.SHARED)

    schedule = build_op_plan(waker, OpChoice("shard_p2p", 4, SM, 1, tactics))

    assert (schedule.tactics, schedule.compute_sms) == (tactics, waker.gpu.sms - 16)
    assert build_op_plan(waker, OpChoice("shard_p2p", 4, shared)).compute_sms == waker.gpu.sms


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("serial(algorithm=rings)", "MGS204"),
        ("serial(transfer=push)", "MGS204"),
        ("serial(engine=dma(3, eager))", "MGS204"),
        ("serial(engine=dma(3, shared))", "MGS407"),
        ("serial(engine=sm(8, mode=shared))", "MGS201"),
        ("serial(wait=poll, wait=poll)", "MGS206"),
        ("serial(engine=sm(8, shared, shared))", "MGS204"),
    ],
)
def test_arguments_that_are_not_understood(waker: OpCase, written: str, code: str) -> None:
    with pytest.raises(CompileError) as caught:
        read_choice(waker, written)

    (found,) = caught.value.diagnostics
    assert found.code.name == code


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("serial(engine=sm(16, library))", "all data first, then the kernel, by the library"),
        ("hetero_fused_1d(chunks=4, engine=dma(3))", "own rows first, then 1 round over others', by 3 copy engines"),
        ("uniform_fused_2d(chunks=8, engine=sm(16))", "2 rounds, each over some columns of all rows, by 16 SMs"),
        (
            "hetero_unfused_1d(chunks=8, engine=dma(3), streams=4)",
            "own rows first, then 6 slices of others' rows, by 3 copy engines",
        ),
        (
            "bespoke(parts=[[128, 0], [0, 32], [0, 96]], engine=dma(3), streams=2)",
            "own rows first, then 32 + 96 of each other rank, by 3 copy engines",
        ),
        (
            "bespoke(parts=[[64, 32, 0, 0], [64, 96, 128, 128]], engine=dma(3), streams=2)",
            "2 rounds of unequal rows of the others, own rows in parts 1 and 2, by 3 copy engines",
        ),
    ],
)
def test_a_schedule_is_said_in_words(text: str, words: str) -> None:
    (case,) = compile_text(TEXT).workloads[0].cases

    assert words_of(read_choice(case, text), case.shape.pattern, 4) == words


def test_where_a_kernel_comes_first_its_own_rows_are_last() -> None:
    choice = OpChoice("hetero_fused_1d", 8, DMA)

    assert words_of(choice, Pattern.GEMM_RS, 4) == "2 rounds over others' rows, own rows last, by 3 copy engines"
    assert words_of(OpChoice("ring", 4, DMA), Pattern.ALL_GATHER, 4) == "ring(chunks=4, engine=dma(3))"
