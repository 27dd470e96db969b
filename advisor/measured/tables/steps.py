"""Training steps that were measured, against steps that are simulated: tables ``training_steps*.csv``.

A row is a model, a mesh, a batch and what is made again, shared and overlapped. It is written as a file of the language
and simulated as ``magus simulate`` does, under the stack of its source. Rows that do not publish their micro batch or
the chunks of their pipeline are compared and not counted: over those a simulated step moves by up to 50 %.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from pathlib import Path

from ....compiler import CompileError, compile_text
from ....compiler.ir import DType
from ....compiler.ir.step import StepScenario
from ....compiler.planning.build import ScheduleError
from ....simcore import RunTooLarge
from ...steps.layer_times import LayerTimes
from ...steps.outcome import StepOutcome, outcome_of
from .csv_rows import FIT, HELD_OUT, in_odd_half, is_positive, rows_in, tables_of
from .gemm import gpu_named

PATTERNS = ("training_steps*.csv", "training_steps*.csv.gz")
COLUMNS = ("source", "name", "model", "gpu", "dtype", "sharding", "overlap")
NUMBERS = ("n_gpus", "tp", "pp", "vpp", "cp", "dp", "global_batch", "seq", "step_s")
ASSUMED = re.compile(r"\b(mbs|vpp)\b")
"""Words of the column ``assumed`` that name a knob on which the step hangs."""

ASYNCHRONOUS = ("async", "AsyncTP")
"""Ends of the names of rows whose products hide collectives."""

SAME_TOKENS = 0.02
"""Share by which the tokens per second of a row may differ from its batch over its time; units differ by far more."""

APART = 0.05
"""Share by which two measured steps must differ for their order to count: what one repeats of a step."""

NAMED_MODELS = {
    "L8B": "h4096 L32 a32 ffn14336 kv8 V128256",
    "L70B": "h8192 L80 a64 ffn28672 kv8 V128256",
    "L405B": "h16384 L126 a128 ffn53248 kv8 V128256",
}
"""Sizes of Llama 3.1 (arXiv 2407.21783, table 3) by the names that tables give them."""

_SIZES = re.compile(r"h(\d{1,6}) L(\d{1,4}) a(\d{1,4}) ffn(\d{1,7}) kv(\d{1,4}) V(\d{1,7})")


@dataclass(frozen=True, slots=True)
class StepSource:
    """What all rows of a source have in common.

    ``stack`` is that of its framework. ``by_sequence`` says of what a row makes again whether activations are cut by
    sequence, ``fitted`` of the name of a row whether constants of the stack were fitted to it.
    """

    label: str
    stack: str
    by_sequence: Callable[[str], bool] = lambda recompute: True
    fitted: Callable[[str], bool] = lambda name: False


ORIGINS: Mapping[str, StepSource] = {
    "arXiv:2104.04473 table 1": StepSource(
        "Megatron 2021, table 1", "megatron_2021", lambda recompute: False, lambda name: not in_odd_half(name)
    ),
    "arXiv:2104.04473 table 2": StepSource("Megatron 2021, table 2", "megatron_2021", lambda recompute: False),
    # What the paper adds is both at once; its baseline makes all again and has whole activations on each rank.
    "arXiv:2205.05198": StepSource("Megatron 2022, table 5", "megatron_2022", lambda recompute: recompute == "sel"),
    "NVIDIA/Megatron-LM": StepSource("Megatron-LM, H100", ""),
    "pytorch/torchtitan@b5bcd76c6:benchmarks/llama3_h100_202412": StepSource("torchtitan, December 2024", "torchtitan"),
    "pytorch/torchtitan@b5bcd76c6:benchmarks/asyncTP_202506": StepSource(
        "torchtitan, June 2025", "torchtitan", fitted=lambda name: True
    ),
}
"""By how a source begins; the others have no stack."""

KEPT = {"none": "all", "full": "least", "sel": "qkv, r, u", "sac": "qkv, a, u"}
"""What is kept, by what a row makes again. ``sel`` of Megatron is attention alone; per-op checkpoints of torchtitan
(``sac``, and ``sel`` there) keep attention and every other product."""

ZERO = {"ddp": 0, "zero1": 1, "fsdp": 3}
NICS = {"A100": (25, 22), "H100": (50, 45)}
"""GB/s of the NIC of a GPU, nominal and achieved: HDR and NDR InfiniBand (200 and 400 Gb/s)."""
NODE = 8


@dataclass(frozen=True, slots=True)
class StepRow:
    """A measured step.

    Attributes
    ----------
    sizes
        Hidden, layers, heads, columns of the MLP, heads of keys, vocabulary.
    mesh
        tp, dp, pp.
    cp
        How many ranks share a sequence.
    micro_batch, batch, length
        Sequences of one microbatch and of all, and tokens of each.
    assumed
        What the step hangs on and is not published, or not written; empty where all is.
    """

    source: str
    name: str
    gpu: str
    is_limited: bool
    sizes: tuple[int, ...]
    mesh: tuple[int, int, int]
    cp: int
    chunks: int
    micro_batch: int
    batch: int
    length: int
    dtype: DType
    recompute: str
    sharding: str
    overlap: str
    assumed: str
    seconds: float

    @property
    def origin(self) -> StepSource:
        """What its source has in common."""
        found = (each for begin, each in ORIGINS.items() if self.source.startswith(begin))
        return next(found, StepSource(self.source[:64], ""))

    @property
    def use(self) -> str:
        """Whether it counts: ``held out``, ``fit``, or what the step hangs on is ``assumed``."""
        return "assumed" if self.assumed else FIT if self.origin.fitted(self.name) else HELD_OUT

    @property
    def ranks(self) -> int:
        """How many GPUs there are."""
        tp, dp, pp = self.mesh
        return tp * dp * pp * self.cp


@dataclass(frozen=True, slots=True)
class StepComparison:
    """A row and its step as it is simulated."""

    row: StepRow
    outcome: StepOutcome

    @property
    def error(self) -> float:
        """Simulated over measured, minus 1."""
        return self.outcome.seconds / self.row.seconds - 1


def step_rows(folder: Path) -> Iterator[StepRow | str]:
    """Yield the rows of all tables of ``folder``, or why rows were left out.

    Raises
    ------
    MeasuredError
        If a table cannot be read.
    """
    yield from rows_in(tables_of(folder, PATTERNS), COLUMNS, NUMBERS, step_row)


def step_row(row: Mapping[str, str]) -> StepRow | str:
    """Return what a row says, or why it is no step that can be compared; the reason names the row."""
    name = row["name"][:64]
    words, _, gpu_notes = row["gpu"].partition(" (")
    gpu, profile = gpu_named(words)
    sizes = _SIZES.fullmatch(NAMED_MODELS.get(row["model"], row["model"]))
    numbers = {each: float(row[each]) for each in NUMBERS if each != "step_s"}
    if not row.get("recompute"):
        return "a step that does not say what is made again"
    if profile is None or gpu not in NICS:
        return f"{name}: the GPU {words[:40]!r} or the network between its nodes is not known"
    if sizes is None:
        return f"{name}: the model {row['model'][:40]!r} has no sizes"
    if row["dtype"] not in ("bf16", "fp16", "fp8"):
        return f"a step in {row['dtype'][:16]}: products are in 16 bits, or in fp8"
    if row["recompute"] not in KEPT or row["sharding"] not in ZERO:
        return f"{name}: recompute or sharding is not known"
    if any(value % 1 or value > 1 << 24 for value in numbers.values()):
        return f"{name}: a number of GPUs, sequences or tokens is not whole"
    peak = profile.peak(DType.FP8 if row["dtype"] == DType.FP8.value else DType.BF16)
    return _checked(row, gpu, bool(gpu_notes), tuple(map(int, sizes.groups())), numbers, peak)


def _checked(
    row: Mapping[str, str], gpu: str, is_limited: bool, sizes: tuple[int, ...], numbers: Mapping[str, float], peak: int
) -> StepRow | str:
    """Return the row if its numbers agree with each other and with what the GPU can do."""
    name, number = row["name"][:64], {each: int(value) for each, value in numbers.items()}
    tp, dp, pp, batch, length = (number[each] for each in ("tp", "dp", "pp", "global_batch", "seq"))
    if tp * dp * pp * number["cp"] != number["n_gpus"]:
        return f"{name}: tp, cp, pp and dp do not multiply to {number['n_gpus']} GPUs"
    micro = row.get("micro_batch", "")
    # Without a pipeline torchtitan computes the sequences of a rank at once.
    micro_batch = int(float(micro)) if is_positive(micro) else batch // dp if pp == 1 else 0
    if not micro_batch or batch % (micro_batch * dp):
        return f"{name}: {batch} sequences are no whole number of microbatches"
    seconds = float(row["step_s"])
    tokens = row.get("tokens_per_s_per_gpu", "")
    if is_positive(tokens) and abs(float(tokens) * seconds * number["n_gpus"] / (batch * length) - 1) > SAME_TOKENS:
        return f"{name}: tokens/s and seconds are of different steps, or in other units"
    if least_flops(sizes, batch * length, length) / number["n_gpus"] / seconds > peak:
        return f"{name}: {seconds:g} s are less than the products take at the peak of {gpu}"
    assumed = row.get("assumed", "").lstrip("; ") if ASSUMED.search(row.get("assumed", "")) else ""
    if not assumed and name.endswith(ASYNCHRONOUS):
        assumed = "products and collectives are simulated one after the other"
    words = row["name"], gpu, is_limited, sizes, (tp, dp, pp), number["cp"], number["vpp"], micro_batch, batch, length
    said = DType(row["dtype"]), row["recompute"], row["sharding"], row["overlap"]
    return StepRow(row["source"], *words, *said, assumed, seconds)


def least_flops(sizes: Sequence[int], tokens: int, length: int) -> float:
    """Operations of the products of a step, forward and backward, with nothing made again and causal attention."""
    hidden, layers, heads, inner, kv_heads, vocabulary = sizes
    mlp = (2 if inner == 4 * hidden else 3) * hidden * inner
    weights = layers * (hidden * hidden * (2 + 2 * kv_heads / heads) + mlp) + hidden * vocabulary
    return 6 * tokens * (weights + layers * hidden * length / 2)


def text_of_step(row: StepRow) -> str:
    """Return a row as a file of the language."""
    hidden, layers, heads, inner, kv_heads, vocabulary = row.sizes
    (tp, dp, pp), origin = row.mesh, row.origin
    is_gated = inner != 4 * hidden
    cut = origin.by_sequence(row.recompute)
    norm, summed = ("all_gather(norm({}))", "reduce_scatter") if cut else ("norm({})", "all_reduce")
    types = ("" if kv_heads == heads else f", kv_heads={kv_heads}") + (", over=cp" if row.cp > 1 else "")
    cp = "" if row.cp == 1 else f" cp {row.cp},"
    rows = Fraction(row.length, row.cp)  # of a sequence, on each of the ranks that share it
    keep = KEPT["sac" if row.recompute == "sel" and row.sharding == "fsdp" else row.recompute]
    narrow, typed = ("cast({}, type=fp8)", ", type=bf16") if row.dtype is DType.FP8 else ("{}", "")
    norm, act = norm.replace("norm({})", narrow.format("norm({})")), f"{'swiglu' if is_gated else 'gelu'}(u)"
    wide = DType.BF16 if typed else row.dtype
    overlap = "" if row.overlap == "none" else "overlap gradients, weights;"
    pipeline = "one_f_one_b" if row.chunks == 1 else f"interleaved(chunks={row.chunks})"
    stack = f"stack {origin.stack};" if origin.stack else ""
    nominal, achieved = NICS[row.gpu]
    node = row.ranks <= NODE
    fabric = "switch(nvswitch, link=nvlink)" if node else f"rails(nvswitch, link=nvlink, node={NODE}, nic=ib)"
    return f"""mgs 1
use "nvidia/{row.gpu.lower()}"
link ib {{ bandwidth {nominal} GB/s @nominal; achieved {achieved} GB/s @assumed; latency 2 us @assumed }}
system pod {{ gpus {row.ranks} x {row.gpu}; fabric {fabric}; mesh tp {tp},{cp} dp {dp}, pp {pp} }}
workload layer on pod.tp {{
  x    = tensor {wide.value}[{row.micro_batch * rows}, {hidden}]{" shard rows" if cut else ""}
  wqkv = tensor {row.dtype.value}[{hidden}, {hidden // heads * (heads + 2 * kv_heads)}] shard cols
  wo   = tensor {row.dtype.value}[{hidden}, {hidden}] shard rows
  wup  = tensor {row.dtype.value}[{hidden}, {2 * inner if is_gated else inner}] shard cols
  wdn  = tensor {row.dtype.value}[{inner}, {hidden}] shard rows
  qkv = gemm({norm.format("x")}, wqkv{typed})
  a   = attention(qkv, heads={heads}{types}, causal=yes)
  r   = add(x, {summed}(gemm({narrow.format("a")}, wo{typed})))
  u   = gemm({norm.format("r")}, wup{typed})
  y   = add(r, {summed}(gemm({narrow.format(act)}, wdn{typed})))
  repeat {layers} y as x
  batch x by {rows}
}}
workload train on pod {{
  step layer
  sequences {row.batch} x {row.length}
  head {vocabulary}
  optimizer adam(gradients={"bf16" if row.dtype is DType.FP16 else "fp32"}, master=fp32)
}}
schedule measured for train {{
  pipeline {pipeline}; zero {ZERO[row.sharding]}; {overlap} keep {keep}; {stack}
}}
"""


def scenario_of(row: StepRow) -> StepScenario:
    """Compile a row.

    Raises
    ------
    CompileError
        If it is no step, for instance because heads do not divide.
    """
    found = compile_text(text_of_step(row), row.name).step("train")
    assert found is not None, "the text has this step"
    return found


def step_comparisons(rows: Sequence[StepRow], advance: Callable[[], None]) -> Iterator[StepComparison | str]:
    """Yield each row as it is simulated, or why it is not; ``advance`` is called after each."""
    times = LayerTimes()
    for row in rows:
        try:
            scenario = scenario_of(row)
            yield StepComparison(row, outcome_of(scenario, scenario.schedules[0], times))
        except (CompileError, RunTooLarge, ScheduleError) as error:
            yield f"{row.name}: not simulated: {str(error).splitlines()[0]}"
        advance()


def pairs_of(rows: Sequence[StepComparison]) -> Iterator[tuple[StepComparison, StepComparison]]:
    """Yield pairs of rows of one model and source that were measured more than ``APART`` apart, per token and GPU."""
    counted = [row for row in rows if not row.row.assumed]
    for one, other in combinations(counted, 2):
        alike = (one.row.sizes, one.row.gpu, one.row.origin) == (other.row.sizes, other.row.gpu, other.row.origin)
        costs = _cost(one.row, one.row.seconds), _cost(other.row, other.row.seconds)
        if alike and max(costs) > (1 + APART) * min(costs):
            yield one, other


def _cost(row: StepRow, seconds: float) -> float:
    """GPU seconds of a token."""
    return seconds * row.ranks / (row.batch * row.length)


def in_order(one: StepComparison, other: StepComparison) -> bool:
    """Whether two rows are simulated in the order in which they were measured."""
    measured = _cost(one.row, one.row.seconds) > _cost(other.row, other.row.seconds)
    simulated = _cost(one.row, one.outcome.seconds), _cost(other.row, other.outcome.seconds)
    return simulated[0] != simulated[1] and (simulated[0] > simulated[1]) == measured
