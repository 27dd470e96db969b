"""Implementations: what a block says, which are shipped, and what is asked of them."""

from collections.abc import Callable
from fractions import Fraction

import pytest

from magus.compiler import CompileError, compile_text, format_text
from magus.compiler.ir import (
    TICKS_PER_US,
    DType,
    EngineKind,
    Implementation,
    Origin,
    Pattern,
    SumForm,
    SumKernel,
    System,
    TransferPath,
)
from magus.compiler.resolve.schedules.implementation import PATTERN_WORDS, shipped_implementations
from tests.helpers.some import some

HEAD = """use "nvidia/h100"

system s { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }

workload w on s {
  x = tensor bf16[512, 1024] shard rows
  w = tensor bf16[1024, 2048] shard cols
  y = gemm(all_gather(x), w)
}
"""
BLOCK = """
implementation mine {
  source reported "its source code"
  gpus H100, H800
  dtypes bf16

  ag_gemm {
    schedule hetero_unfused_1d(streams=2, engine=dma(2), transfer=get)
    pieces 2
    path copy_engine
    rate 90 %
    limit 300 GB/s @fitted "a table"
    gpus H800
    dtypes bf16
    most_rows 8192
    most_ranks 16
    call 40 us
    graph_call 5 us
    host 200 us
    barrier 3 us
    step 10 us
    tiles [[128, 256]]
    rereads_below 4096
    rows_per_read 1.5
    error 8 % @measured "the other half of the table"
    shortest 200 us
  }
}

explore w { implementations mine }
"""


def requested(block: str = BLOCK) -> Implementation:
    (found,) = compile_text(HEAD + block).scenario("w").case.explore.implementations
    return found


def system(ranks: int = 8, gpu: str = "H100") -> System:
    text = HEAD.replace("4 x H100", f"{ranks} x {gpu}").replace("nvidia/h100", f"nvidia/{gpu.lower()}")
    return compile_text(text).scenario("w").case.system


def test_a_block_says_schedule_path_and_costs() -> None:
    found = requested()
    (method,) = found.methods

    assert (found.name, found.gpus, found.dtypes) == ("mine", ("H100", "H800"), (DType.BF16,))
    assert (method.pattern, method.path, method.rate) == (Pattern.AG_GEMM, TransferPath.COPY_ENGINE, Fraction(9, 10))
    assert (method.choice.template, method.choice.chunks, method.choice.streams) == ("hetero_unfused_1d", 8, 2)
    assert method.limit_bytes_per_s == 300 * 10**9
    assert (method.call_ticks, method.barrier_ticks, method.step_ticks) == tuple(
        us * TICKS_PER_US for us in (40, 3, 10)
    )
    assert (method.graph_call_ticks, method.host_ticks) == (5 * TICKS_PER_US, 200 * TICKS_PER_US)
    assert (method.gpus, method.dtypes, method.most_rows, method.most_ranks) == (("H800",), (DType.BF16,), 8192, 16)
    assert (method.tiles, method.rereads_below, method.rows_per_read) == (((128, 256),), 4096, Fraction(3, 2))
    assert (method.error, method.shortest_ticks) == (Fraction(8, 100), 200 * TICKS_PER_US) and not method.missing


def test_every_number_has_its_origin() -> None:
    origins = {each.path: (each.origin, each.source) for each in requested().provenance}

    assert origins["mine.ag_gemm.limit"] == (Origin.FITTED, "a table")
    assert origins["mine.ag_gemm.call"] == (Origin.REPORTED, "its source code")


def test_it_is_printed_as_it_is_read() -> None:
    text = HEAD + BLOCK

    assert format_text(text) == text
    assert format_text(format_text(text.replace("  ", " "))) == format_text(text.replace("  ", " "))


def test_what_is_not_said_is_missing() -> None:
    block = "implementation mine { ag_gemm { schedule shard_p2p(engine=dma); path copy_engine; rate 90 % } }"

    with pytest.raises(CompileError) as caught:
        requested(f"{block}\nexplore w {{ implementations mine }}")

    assert "mine cannot be predicted: call, step not known" in str(caught.value)


def codes_of(read: Callable[[str], object], text: str) -> set[str]:
    """The codes of the errors for which a text is refused."""
    with pytest.raises(CompileError) as caught:
        read(text)
    return {each.code.name for each in caught.value.diagnostics}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("path copy_engine", "path library"),
        ("path copy_engine", "path in_switch"),
        ("path copy_engine", "path tile_stores"),
        ("schedule hetero_unfused_1d(streams=2, engine=dma(2), transfer=get)", "schedule serial(engine=dma)"),
        ("streams=2", "streams=2, chunks=8"),
        ("tiles [[128, 256]]", ""),
        ("rereads_below 4096", ""),
        ("graph_call 5 us", "graph_call 41 us"),
    ],
)
def test_statements_that_contradict_each_other(old: str, new: str) -> None:
    assert codes_of(requested, BLOCK.replace(old, new)) == {"MGS314"}


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("gpus H100, H800", "gpus 8", "MGS204"),
        ("dtypes bf16", "dtypes bf17", "MGS204"),
        ("  dtypes bf16\n\n", "  dtypes fp16\n\n", "MGS530"),
        ("    gpus H800", "    gpus 8", "MGS204"),
        ("    dtypes bf16", "    dtypes bf17", "MGS204"),
        ("most_rows 8192", "most_rows 0", "MGS307"),
        ("rate 90 %", "rate 101 %", "MGS307"),
        ("rate 90 %", "rate 90 GB/s", "MGS303"),
        ("call 40 us", "call 40", "MGS301"),
        ("call 40 us", "call 40 us; call 40 us", "MGS206"),
        ("rows_per_read 1.5", "rows_per_read 0", "MGS307"),
        ("tiles [[128, 256]]", "tiles [128, 256]", "MGS116"),
        ("path copy_engine", "path copy_engine sm_copy", "MGS113"),
        ("engine=dma(2)", "engine=dma(200)", "MGS401"),
        ("schedule hetero_unfused_1d(streams=2, engine=dma(2), transfer=get)", "schedule", "MGS116"),
    ],
)
def test_bad_input_is_reported_at_its_place(old: str, new: str, code: str) -> None:
    assert code in codes_of(requested, BLOCK.replace(old, new))


KERNELS = """
implementation mine {
  source reported "a table"
  gemm_ar {
    schedule serial(engine=sm(16, library))
    path library
    call 30 us
    one_shot_below [[2, 8 MiB], [8, 256 KiB]]
    one_shot_start 4 us
    one_shot_step 50 ns
    one_shot_bandwidth 250 GB/s
    in_switch_below [[8, 64 MiB]]
    in_switch_start 9 us
    in_switch_bandwidth 200 GB/s
  }
}

explore w { implementations mine }
"""


def summing(block: str) -> Implementation:
    down = HEAD.replace("shard rows", "shard k").replace("shard cols", "shard rows").replace("shard k", "shard cols")
    down = down.replace("gemm(all_gather(x), w)", "all_reduce(gemm(x, w))")
    (found,) = compile_text(down + block).scenario("w").case.explore.implementations
    return found


def test_a_library_may_leave_small_all_reduces_to_kernels() -> None:
    (method,) = summing(KERNELS).methods

    assert not method.missing and not method.is_library
    one_shot, in_switch = method.kernels
    below = ((2, 8 << 20), (8, 256 << 10))
    assert one_shot == SumKernel(SumForm.ONE_SHOT, 4 * TICKS_PER_US, TICKS_PER_US // 20, 250 * 10**9, below)
    assert in_switch == SumKernel(SumForm.IN_SWITCH, 9 * TICKS_PER_US, 0, 200 * 10**9, ((8, 64 << 20),))
    assert (one_shot.below_bytes(8), one_shot.below_bytes(4)) == (256 << 10, 0)
    plain = summing(KERNELS.partition("    one_shot")[0] + "  }\n}\nexplore w { implementations mine }\n")
    assert plain.methods[0].is_library


def test_a_child_changes_one_kernel() -> None:
    late = "implementation late extends mine { gemm_ar { one_shot_start 5 us; one_shot_below [[8, 1 MiB]] } }"
    (method,) = summing(KERNELS.replace("implementations mine", "implementations late") + late).methods

    assert method.kernels[0].start_ticks == 5 * TICKS_PER_US and method.kernels[0].below == ((8, 1 << 20),)
    assert method.kernels[1] == summing(KERNELS).methods[0].kernels[1]


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("one_shot_below [[2, 8 MiB], [8, 256 KiB]]", "", "MGS314"),
        ("path library", "path sm_copy", "MGS314"),
        ("gemm_ar", "gemm_rs", "MGS314"),
        ("[8, 256 KiB]", "[8]", "MGS116"),
        ("[8, 256 KiB]", "[1, 256 KiB]", "MGS307"),
        ("[8, 256 KiB]", "[8, 256]", "MGS301"),
        ("[[8, 64 MiB]]", "64 MiB", "MGS116"),
        ("in_switch_start 9 us", "", "MGS209"),
        ("one_shot_bandwidth 250 GB/s", "", "MGS209"),
        ("one_shot_step 50 ns", "exchange_start 4 us", "MGS314"),
        ("one_shot_step 50 ns", "sends copies", "MGS314"),
    ],
)
def test_kernels_of_a_library_that_are_not_whole(old: str, new: str, code: str) -> None:
    assert code in codes_of(summing, KERNELS.replace(old, new))


EXPERTS = """
implementation whole {
  source reported "its source code"
  dtypes fp8
  experts { start 60 us; flops 2000 TFLOP/s; memory 6 TB/s; exponent 2; block 16; weight 17/32; least_ranks 4
    most_ranks 8; most_rows 1024; error 5 % @measured "other ranks"; shortest 80 us }
}
"""


def test_a_kernel_for_experts_and_what_a_child_changes() -> None:
    asked = f"{HEAD}{EXPERTS}implementation mine extends whole {{ experts {{ start base.start + 5 us; rank 1 us }} }}\n"
    layer = "  z = combine(dispatch(x, experts=8, top=2))\n  y = gemm(all_gather(x), w)\n"
    text = asked.replace("  y = gemm(all_gather(x), w)\n", layer, 1) + "explore w { implementations whole, mine }"
    whole, mine = compile_text(text).scenario().explore.implementations

    assert whole.experts is not None and mine.experts is not None and whole.methods == ()
    assert (whole.experts.weight_bytes, whole.experts.error) == (Fraction(17, 32), Fraction(5, 100))
    assert (mine.experts.start_ticks, mine.experts.rank_ticks) == (65 * TICKS_PER_US, TICKS_PER_US)
    assert (mine.experts.most_rows, mine.experts.error, mine.experts.shortest_ticks) == (None, None, 0)
    assert {each.path for each in mine.provenance} >= {"mine.experts.start", "mine.experts.memory"}


@pytest.mark.parametrize(
    ("old", "new", "code", "about"),
    [
        ("memory 6 TB/s; ", "", "MGS209", "memory"),
        ("least_ranks 4", "least_ranks 9", "MGS314", "above most_ranks"),
        ("weight 17/32", "weight 17/32 us", "MGS303", "weight"),
        ("start 60 us", "begin 60 us", "MGS201", "begin"),
        ("extends whole { experts { rank 1 us } }", "extends whole { experts 1 us }", "MGS116", "opens a block"),
    ],
)
def test_kernels_for_experts_that_are_wrong(old: str, new: str, code: str, about: str) -> None:
    text = f"{HEAD}{EXPERTS}implementation mine extends whole {{ experts {{ rank 1 us }} }}\n"
    with pytest.raises(CompileError) as caught:
        compile_text(text.replace(old, new))

    assert (code, True) in [(each.code.name, about in each.message) for each in caught.value.diagnostics]


def test_a_kernel_for_experts_is_no_pair() -> None:
    with pytest.raises(CompileError) as caught:
        compile_text(f"{HEAD}{EXPERTS}explore w {{ implementations whole }}")

    (only,) = caught.value.diagnostics
    assert only.code.name == "MGS530" and only.hint == "it does experts of a layer"


def test_an_unused_implementation_is_checked_too() -> None:
    with pytest.raises(CompileError) as caught:
        compile_text(HEAD + BLOCK.replace("rate 90 %", "rate 900 %").partition("explore")[0])

    assert [each.code.name for each in caught.value.diagnostics] == ["MGS307"]


def test_patterns_are_those_that_overlap() -> None:
    assert {"ag_gemm", "gemm_rs", "gemm_ar", "a2a_gemm", "gemm_a2a"} <= PATTERN_WORDS.keys()


def test_shipped_implementations_say_where_their_numbers_come_from() -> None:
    for found in some(shipped_implementations(system())):
        assert found.gpus and (found.methods or found.experts)
        assert all(each.source or each.origin is Origin.ASSUMED for each in found.provenance)


def test_shipped_implementations_without_numbers_are_not_predicted() -> None:
    incomplete = {
        each.name for each in shipped_implementations(system()) if each.methods and all(m.missing for m in each.methods)
    }

    assert incomplete == {"torch_multimem", "transformer_engine", "flashinfer", "mscclpp", "xla"}


def test_the_schedule_of_an_implementation_is_that_of_the_system() -> None:
    for ranks in (2, 4, 8):
        (flux,) = [each for each in shipped_implementations(system(ranks)) if each.name == "flux"]
        gather = flux.method(Pattern.AG_GEMM)
        assert gather is not None and gather.choice.chunks == 4 * ranks
        assert (gather.choice.engine.kind, gather.choice.engine.count) == (EngineKind.DMA, ranks - 1)


def test_an_alias_leads_to_an_implementation() -> None:
    block = 'use "implementations/flux" as them\nexplore w { implementations them.flux }'

    assert requested(block).name == "flux"


CHILD = """
implementation ours extends mine {
  gpus H800

  ag_gemm {
    call base.call + 5 us @measured "ours"
    step 4 us @fitted "ours"
  }

  gemm_rs {
    schedule shard_p2p(engine=dma)
    path copy_engine
  }
}

explore w { implementations ours }
"""


def child(block: str = CHILD) -> Implementation:
    return requested(BLOCK.partition("explore")[0] + block)


def test_a_child_restates_numbers_and_inherits_the_rest() -> None:
    ours, mine = child(), requested()
    method, before = ours.methods[0], mine.methods[0]

    assert (ours.name, ours.gpus, ours.dtypes) == ("ours", ("H800",), (DType.BF16,))
    assert [each.pattern for each in ours.methods] == [Pattern.AG_GEMM, Pattern.GEMM_RS]
    assert (method.call_ticks, method.step_ticks) == (45 * TICKS_PER_US, 4 * TICKS_PER_US)
    assert (method.choice, method.tiles, method.rate) == (before.choice, before.tiles, before.rate)


def test_an_error_is_not_inherited_with_other_numbers() -> None:
    method = child().methods[0]
    same = child(CHILD.replace('call base.call + 5 us @measured "ours"', "error 5 %").replace("step 4 us", "# "))

    assert (method.error, method.shortest_ticks) == (None, 0)
    assert (method.gpus, method.dtypes, method.most_rows) == ((), (), None)
    assert (same.methods[0].error, same.methods[0].shortest_ticks) == (Fraction(5, 100), 200 * TICKS_PER_US)


def test_inherited_numbers_say_whose_they_are() -> None:
    owners = {each.path: (each.origin, each.inherited) for each in child().provenance}

    assert owners["ours.ag_gemm.rate"] == (Origin.REPORTED, "mine.ag_gemm")
    assert owners["ours.ag_gemm.call"] == (Origin.MEASURED, "")


def test_a_child_of_a_shipped_implementation() -> None:
    block = 'use "implementations/flux" as them\nimplementation f extends them.flux { ag_gemm { call 99 us } }\n'
    (gather, scatter) = requested(f"{block}explore w {{ implementations f }}").methods

    assert gather.call_ticks == 99 * TICKS_PER_US and gather.error is None and scatter.error is not None
    assert format_text(block) != "" and "extends them.flux" in format_text(block)


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("extends mine", "extends ours", "MGS205"),
        ("extends mine", "extends main", "MGS203"),
        ("extends mine", "extends H100", "MGS210"),
        ("base.call", "base.limits", "MGS201"),
        ("extends mine", "", "MGS203"),
        ("call base.call + 5 us", "path tile_stores; call 5 us", "MGS314"),
    ],
)
def test_a_wrong_child(old: str, new: str, code: str) -> None:
    assert code in codes_of(child, CHILD.replace(old, new))
