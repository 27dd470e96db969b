"""Training steps: errors against measured ones, memory against measured peaks, and what layouts cost to compare.

``MAGUS_MEASURED_DATA`` names the folder of ``training_steps.csv``; without it nothing is compared. Seconds are of one
core.
"""

import os
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from hypothesis import given, settings

from magus.advisor.measured.tables.steps import StepComparison, StepRow, scenario_of, step_comparisons, step_rows
from magus.advisor.measured.validate.step_report import by_source, targets_of
from magus.advisor.steps.layer_times import LayerTimes
from magus.advisor.steps.outcome import MARGIN, chunks_of, memory_of, outcome_of
from magus.advisor.steps.search import search
from magus.advisor.steps.times import ticks_of
from magus.compiler import compile_text
from magus.compiler.ir import TICKS_PER_SECOND, Settings
from magus.compiler.ir.step import Overlapped, Pipeline, PipelineKind, StepScenario, StepSchedule
from magus.simcore.steps.pipeline import ChunkTicks, run_pipeline
from tests.helpers.pipelines import by_messages, drawn

from .harness.joint_step import joint_ticks, step_of
from .harness.report import Figure, main

SHORT = "titan-8b-8-compile, 8B"
PEAKS_GIB = {SHORT: 77.0, "titan-8b-128-compile, 8B": 62.0, "titan llama3_h100_202412 T4 2D, 70B": 71.9}
"""Measured peaks of memory by row (pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, tables 1, 3, 4)."""

LONG_PEAKS_GIB = {1: 83.9, 2: 84.2, 4: 84.0, 8: 84.5}
"""Of 8B with a sequence of 32,768 tokens on each of 8 GPUs, by how many of them share it (table 2)."""

SEARCHES = {"steps/llama3_70b_128": 60, "steps/deepseek_v3_1024": 120}
"""Seconds in which all layouts of an example are to be compared."""

BESIDE = tuple(Overlapped)
DUAL = StepSchedule("dual", Pipeline(PipelineKind.DUAL))
ZERO_BUBBLE = Pipeline(PipelineKind.ZERO_BUBBLE)
INTERLEAVED = Pipeline(PipelineKind.INTERLEAVED, 2)
JOINT = (
    ((2, 2, 2), 4, StepSchedule("1F1B, ZeRO 1, behind", zero=1)),
    ((2, 2, 2), 4, StepSchedule("1F1B, ZeRO 0, beside", zero=0, overlapped=BESIDE)),
    ((2, 2, 2), 4, StepSchedule("1F1B, ZeRO 1, beside", zero=1, overlapped=BESIDE)),
    ((2, 2, 2), 4, StepSchedule("interleaved(2), ZeRO 1, beside", INTERLEAVED, zero=1, overlapped=BESIDE)),
    ((2, 2, 2), 4, StepSchedule("zero_bubble, ZeRO 1, beside", ZERO_BUBBLE, zero=1, overlapped=BESIDE)),
    ((2, 2, 2), 4, StepSchedule("zero_bubble, ZeRO 3, beside", ZERO_BUBBLE, zero=3, overlapped=BESIDE)),
    ((2, 2, 2), 4, StepSchedule("zero_bubble, ZeRO 3, behind", ZERO_BUBBLE, zero=3)),
    ((2, 2, 2), 4, StepSchedule("1F1B, ZeRO 3, beside", zero=3, overlapped=BESIDE)),
    ((4, 2, 1), 4, StepSchedule("ZeRO 1, beside", zero=1, overlapped=BESIDE)),
    ((4, 2, 1), 4, StepSchedule("ZeRO 3, beside", zero=3, overlapped=BESIDE)),
    ((2, 1, 4), 4, StepSchedule("1F1B")),
    ((2, 1, 4), 4, StepSchedule("interleaved(2)", INTERLEAVED)),
    ((4, 1, 2), 4, DUAL),
    ((2, 1, 4), 8, DUAL),
    ((2, 2, 2), 4, DUAL),
    ((2, 1, 4), 8, StepSchedule("zero_bubble", ZERO_BUBBLE)),
    ((4, 1, 2), 6, StepSchedule("interleaved(4)", Pipeline(PipelineKind.INTERLEAVED, 4))),
    ((1, 1, 8), 8, StepSchedule("1F1B")),
)
"""Sizes of tp, dp and pp, microbatches and schedules of steps that are simulated as one program of all ranks too."""

PEAK_MEMORY_MIB = 2048

DRAWN = 200
"""Pipelines that are drawn and compared with an executor of messages."""

EXPERTS = """use "nvidia/h100"
system node {{ gpus 8 x H100; fabric switch(nvswitch, link=nvlink); mesh dp 8; mesh ep 8, edp 1 over dp }}
workload moe on node.ep {{
  x   = tensor bf16[8 * 4096, {hidden}] shard rows
  wup = tensor bf16[{experts} * {hidden}, {inner}] shard rows
  wdn = tensor bf16[{experts} * {inner}, {hidden}] shard rows
  t = dispatch(x, experts={experts}, top={top}, routing={routing})
  u = grouped_gemm(t, wup)
  y = combine(grouped_gemm(gelu(u), wdn))
  repeat 1 y as x
}}
workload train on node {{ step moe; sequences 8 x 4096 }}
schedule theirs for train {{ zero 0; stack megatron_unfused }}
"""
"""A layer of experts alone as Megatron-LM times it: no gate, and even loads."""

COPIES = "all_to_all"
"""Sends a row for each of its experts: to as many ranks as there can be. The others send one to each rank with any."""

MEASURED_EXPERTS = {
    (4096, 14336, 8, 2): {"all_to_all": (4.262, 7.825), "DeepEP": (4.609, 8.030), "HybridEP": (4.414, 7.840)},
    (7168, 2048, 32, 8): {"all_to_all": (6.943, 10.453), "DeepEP": (5.425, 9.059), "HybridEP": (5.246, 8.846)},
}
"""By hidden, inner, experts, of a token: ms forward and backward by what exchanges rows, in bf16 on 8 H100
(NVIDIA/Megatron-LM@32f2c9cfdd, tests/functional_tests/test_cases/common/moe_perf)."""


def measure() -> Iterator[Figure]:
    """Yield all figures."""
    yield Figure(f"ends of ranks of {DRAWN} drawn pipelines, off those by messages", _inexact(), "cases", "lower", 0)
    yield from _compared()
    yield from _experts()
    for name, seconds in SEARCHES.items():
        yield from _searched(name, seconds)
    yield Figure("peak memory of rows and layouts", _peak_mib(), "MiB", "lower", PEAK_MEMORY_MIB)
    yield from _jointly()
    yield Figure("peak memory with programs of all ranks", _peak_mib(), "MiB", "lower")


def _peak_mib() -> float:
    """The most memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _inexact() -> int:
    """How many drawn pipelines end at other ticks than an executor of messages has them end."""
    off = list[bool]()

    @settings(max_examples=DRAWN, derandomize=True, database=None, deadline=None)
    @given(drawn())
    def compare(case: tuple[Pipeline, list[ChunkTicks], int, int, int]) -> None:
        pipeline, ticks, microbatches, send, beside = case
        ends = run_pipeline(pipeline, ticks, microbatches, send, beside).ends
        off.append(ends != by_messages(pipeline, microbatches, ticks, send, beside))

    compare()
    return sum(off)


def _experts() -> Iterator[Figure]:
    """Layers of experts, whose rows are exchanged by the library."""
    errors = list[float]()
    times = LayerTimes()
    for (hidden, inner, experts, top), measured in MEASURED_EXPERTS.items():
        for by, found in measured.items():
            law = "stride" if by == COPIES else "uniform"
            text = EXPERTS.format(hidden=hidden, inner=inner, experts=experts, top=top, routing=law)
            step = compile_text(text).step()
            assert step is not None, "the text has a step"
            (layer,) = ticks_of(step, step.schedules[0], times, [0]).layers
            took = [1e3 * ticks / TICKS_PER_SECOND for ticks in (layer.forward, layer.inputs + layer.weights)]
            for name, ms, one in zip(("forward", "backward"), took, found, strict=True):
                errors.append(100 * (ms / one - 1))
                yield Figure(f"{experts} experts of {inner} columns, {by}, {name}: error", errors[-1], "%", "lower")
    mean = sum(map(abs, errors)) / len(errors)
    yield Figure(f"layers of experts, {len(errors)} figures: mean of absolute errors", mean, "%", "lower", 10)


def _jointly() -> Iterator[Figure]:
    """How far times composed of layers, traffic and an order are from those of one program of all ranks."""
    times = LayerTimes()
    for (tp, dp, pp), microbatches, schedule in JOINT:
        step = step_of(tp, dp, pp, microbatches=microbatches)
        composed, joint = joint_ticks(step, schedule, times, unit_bytes=1 << 17)
        name = f"tp{tp} dp{dp} pp{pp}, {schedule.name}: error of the composed time"
        yield Figure(name, 100 * abs(composed / joint - 1), "%", "lower", 1)


def _compared() -> Iterator[Figure]:
    folder = os.environ.get("MAGUS_MEASURED_DATA")
    if not folder:
        print("MAGUS_MEASURED_DATA names no folder with tables: no step is compared", file=sys.stderr)
        return
    rows = [row for row in step_rows(Path(folder)) if not isinstance(row, str)]
    compared = [row for row in step_comparisons(rows, lambda: None) if not isinstance(row, str)]
    for target in targets_of(compared):
        yield Figure(target.name, target.value, "%", "higher" if target.at_least else "lower", target.bound)
    for source, group in by_source(compared).items():
        mean = sum(abs(row.error) for row in group) / len(group)
        yield Figure(f"{source}, {len(group)} rows: mean of absolute errors", 100 * mean, "%", "lower")
    yield from _without_stacks(compared)
    yield from _memory(rows)


def _without_stacks(compared: list[StepComparison]) -> Iterator[Figure]:
    """The same rows by the kernels of their graph alone."""
    times = LayerTimes()
    for source, group in by_source(compared).items():
        if group[0].row.origin.stack:
            errors = []
            for row in group:
                scenario = scenario_of(row.row)
                bare = replace(scenario.schedules[0], stack=None)
                errors.append(abs(outcome_of(scenario, bare, times).seconds / row.row.seconds - 1))
            mean = 100 * sum(errors) / len(errors)
            yield Figure(f"{source} without a stack: mean of absolute errors", mean, "%", "lower")


def _memory(rows: list[StepRow]) -> Iterator[Figure]:
    """Against what PyTorch's allocator has reserved at most, which torchtitan logs: the context is not in it."""
    sizes = {size: model for model, size in (("8B", 4096), ("70B", 8192))}
    named = {f"{row.name}, {sizes.get(row.sizes[0])}": row for row in rows}
    peaks = [(name, named[name], peak) for name, peak in PEAKS_GIB.items() if name in named]
    for cp, peak in LONG_PEAKS_GIB.items() if SHORT in named else ():
        long = replace(named[SHORT], mesh=(1, 8 // cp, 1), cp=cp, micro_batch=1, batch=8 // cp, length=cp << 15)
        peaks.append((f"titan-8b-8 of {long.length} tokens", replace(long, recompute="full"), peak))
    for name, row, peak in peaks:
        scenario = scenario_of(row)
        (stage,) = memory_of(scenario, scenario.schedules[0], chunks_of(scenario, scenario.schedules[0]))
        counted = stage.counted - (_made_again(row) if row.recompute == "sel" else 0)
        off = 100 * abs(float(counted * (1 + MARGIN)) / 2**30 / peak - 1)
        yield Figure(f"memory of {name}: off its measured peak", off, "%", "lower", 10)


def _made_again(row: StepRow) -> int:
    """Bytes that the text of a row keeps of its products and torchtitan does not: keys, and half of the gated one.

    It keeps every other product of a layer, in their order, and these are products of their own there.
    """
    hidden, layers, heads, inner, kv_heads, _ = row.sizes
    return layers * row.micro_batch * row.length * (kv_heads * (hidden // heads) + inner) * row.dtype.bytes_of(1)


def _searched(name: str, seconds: int) -> Iterator[Figure]:
    """All layouts of an example, with nothing known before: layers are simulated once each."""
    file = Path(str(files("magus.examples").joinpath(f"{name}.mgs")))
    text = file.read_text()

    def compiled(settings: Settings) -> StepScenario:
        found = compile_text(text, str(file), settings).step()
        assert found is not None, "the example has a step"
        return found

    step = compiled(())
    begin = time.process_time()
    searched = search(step, compiled, LayerTimes())
    took = time.process_time() - begin
    yield Figure(f"{name}: {searched.num_layouts} layouts compared", took, "s", "lower", seconds)
    if searched.outcomes:
        yield Figure(f"{name}: the fastest step", searched.outcomes[0].seconds, "s", "lower")


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", measure))
