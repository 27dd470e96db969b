"""References for the errors of ``magus validate``: targets, the noise of measurements, and other models.

All are in percent of the measured time.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ....compiler.ir import Gpu
from ....compiler.text.units import bytes_text
from ....simcore.kernels.nccl import NEVER_BYTES, NcclCollective, early_switch
from ..tables.csv_rows import FIT, HELD_OUT
from ..tables.gemm import ALL, LARGE, LONG, LOOPED, profile_of

EVERY = "all"
"""The group of all rows of an operation."""

TARGETS: Mapping[tuple[str, str], float] = {
    (ALL, EVERY): 9.0,
    (LARGE, "m >= 512"): 6.0,
    (LONG, HELD_OUT): 7.0,
    (LOOPED, HELD_OUT): 7.0,
    ("ratio M/8", EVERY): 10.0,
    ("ratio K/8", EVERY): 10.0,
    ("all_gather", EVERY): 5.5,
    ("reduce_scatter", EVERY): 5.5,
    ("all_reduce", EVERY): 5.5,
    ("all_to_all", EVERY): 6.0,
    ("SM copy", EVERY): 10.0,
}
"""Targets for the mean error (MAPE), by operation and group."""

MEDIAN_TARGETS: Mapping[str, float] = {
    "hottest experts": 15.0,
    "experts": 12.0,
    "attention context": 15.0,
    "attention generation": 25.0,
    "mla context": 15.0,
    "mla generation": 25.0,
    "mega_moe layer, hottest rank": 12.0,
    "mega_moe layer": 8.0,
    " dispatch": 12.0,
    " combine": 12.0,
}
"""Targets for the median error of rows that nothing was fitted to, by what the name of an operation has in it."""


def median_target(operation: str, group: str) -> float | None:
    """Return the target for the median error of a group, None if there is none or constants were fitted to its rows."""
    named = (bound for part, bound in MEDIAN_TARGETS.items() if part in operation)
    return None if group.startswith((EVERY, FIT)) else next(named, None)


_TWO_FRAMEWORKS = "the same GPU and shape under TensorRT-LLM and under vLLM (aiconfigurator)"
_RINGS = ("all_gather", "reduce_scatter", "all_reduce")
_TWO_SOURCES = "two sources, 8 GPUs, 256 MiB (aiconfigurator; node acceptance logs)"


@dataclass(frozen=True, slots=True)
class Reference:
    """Errors from other sources for one group of some operations, by GPU; an empty name stands for any GPU."""

    operations: tuple[str, ...]
    group: str
    what: str
    percent: Mapping[str, str]

    def on(self, gpu: str) -> str | None:
        """Return the error on a GPU, None if it is unknown."""
        return self.percent.get(gpu, self.percent.get(""))


FLOORS = (
    Reference((LARGE,), "m >= 512", _TWO_FRAMEWORKS, {"A100": "2.8", "H100": "5.7", "B200": "6.4"}),
    Reference(("ratio M/8",), EVERY, _TWO_FRAMEWORKS, {"A100": "4.2", "H100": "6.7", "B200": "7.4"}),
    Reference(("ratio N/8",), EVERY, _TWO_FRAMEWORKS, {"A100": "3.1", "H100": "5.8", "B200": "7.0"}),
    Reference(("ratio K/8",), EVERY, _TWO_FRAMEWORKS, {"A100": "3.0", "H100": "5.7", "B200": "6.2"}),
    Reference(("all_gather",), EVERY, _TWO_SOURCES, {"H100": "2.5"}),
    Reference(("reduce_scatter",), EVERY, _TWO_SOURCES, {"H100": "6"}),
    Reference(("all_reduce",), EVERY, f"{_TWO_SOURCES}; algorithms differ", {"H100": "16"}),
    Reference(("all_to_all",), EVERY, _TWO_SOURCES, {"H100": "1"}),
)
"""The noise floor: the difference between two measurements of the same. No smaller error can be verified."""

BASELINES = (
    Reference(
        (ALL,),
        EVERY,
        "a roofline of four constants, fitted to the same rows",
        {"A100": "13.4", "H100": "10.3", "B200": "14.0"},
    ),
    Reference(
        (LARGE,),
        "m >= 512",
        "nvMatmulHeuristics (as reported, another set of shapes)",
        {"A100": "7", "H100": "21", "H200": "19", "B200": "32"},
    ),
    Reference(tuple(f"ratio {axis}/8" for axis in "MNK"), EVERY, "cutting is free, a ratio of 1", {"": "30-47"}),
    Reference(_RINGS, EVERY, "alpha-beta models (as reported, other sets)", {"": "10-22"}),
    Reference(_RINGS, EVERY, "Meta's model of NCCL (as reported, another set)", {"": "34-67"}),
)
"""Other models for comparison; some were evaluated on other rows, as stated."""

NOTES = (
    "MAPE is the mean of |predicted/measured - 1|. Median and p90 are of |ln(predicted/measured)|, bias is the median "
    "of ln(predicted/measured) with its sign, all times 100. Noise is how far two measurements of the same are apart.",
    "The GEMM constants come from 3,000 shapes out of a random 80% of the same tables: the rows here include those of "
    "the fit. On the 20% held out those with m, n, k >= 512 have 4.7% (A100), 5.3% (H100) and 6.0% (B200), with the "
    "clock of long GEMMs, which comes from half of the pairs of n and k of bf16.",
    "GEMMs of m >= 4096 are there twice: as a layer has them, all from memory, and in the loop that timed them. That "
    "has one input, one output and up to five weights in turn. Where the L2 holds all of these, operands are read at "
    "twice the rate of memory, which is fitted to half of the pairs of n and k of all GPUs together; the other half is "
    "held out of that, and not of the constants of the GEMM. Only this comparison has it: a layer has other kernels in "
    "between, and weights of its own.",
    "Rows of fp8 have the search for a scale and the cast of the input in them: what is compared is the rest, after "
    "both as quantize.csv.gz has them. Its constants too come from 3,000 shapes of a random 80%. On the 20% held out "
    "those with m, n, k >= 512 have 7.7% (H100) and 7.5% (B200), where the form of bf16 with the peak of fp8 has 11.9% "
    "and 11.3%. Smaller ones have 7.5% and 14.0%: what remains is short beside the cast. The output counts one byte an "
    "element, as in a workload; the measured kernels write bf16. Of fp8_block and nvfp4 no cast was measured: one pass "
    "of that to fp8 is taken off, of fp8_block on H100 1.5, fitted with the constants to half of the rows.",
    "A ratio is the time of a GEMM cut into 8 equal parts along one dimension over its time in one piece, for m, n, k "
    ">= 512. Schedules closer than its error cannot be told apart.",
    "The constants of collectives and copies are fitted to the points shown here. Of RCCL on MI300X, all_reduce alone, "
    "26 sizes held out in two halves have 5.3% (median 2.7%, p90 13.1%), three of other threads -0.3% to +3.5%; its "
    "other collectives were not measured.",
    "vllm_all_reduce, sglang_all_reduce and trtllm_all_reduce are all_reduces of these frameworks in a graph, by their "
    "own kernels or left to the library. Constants are fitted to the group fit: two of three powers of two of one "
    "version. The third, another version with the same kernels, and GB300, predicted by the profile of B300, are held "
    "out. Single rows that take several times as long as their neighbours are in these figures.",
    "Dispatches and combines are those of trtllm_alltoall, deepep_low_latency and deepep. Constants are fitted to the "
    "group fit: two of three powers of two of tokens, of TensorRT-LLM on 2 and 64 GPUs. All other groups are held out.",
    "mega_moe layer is one kernel for dispatch, experts and combine, on GB300 with the links of GB200. Constants are "
    "fitted to 4, 16 and 32 ranks with even loads; 8, 12 and 24 ranks are held out. Nothing was fitted to drawn loads: "
    "power_law rows are one draw of a seed that is not known, sampled ones the mean of ten; both are compared with the "
    "mean of ten draws of Magus on the hottest rank.",
    "Attention: its constants are those of one kernel of vLLM on each GPU, FlashAttention-3 on H100 and TensorRT-LLM's "
    "by way of FlashInfer on B200, fitted to half of the configurations of heads up to 256 wide; the other half is "
    "held out. Times are those of a framework in a graph, with the write to its cache. TensorRT-LLM itself takes 1.23 "
    "(H100) and 1.32 (B200) times as long as that kernel for contexts, and 0.97 and 1.14 times in generation, at the "
    "median of the same shapes: kernel trtllm has constants of its own, fitted to the same half of its rows. It packs "
    "heads that share keys in generation, 2 to 32 of them; with 48 and more each reads all keys, from the L2 on H100, "
    "and takes 11 to 28 times as long. On H100 it packs none where it has blocks of 128 keys for less than a quarter "
    "of the SMs, as its source says. MLA has constants of TensorRT-LLM, fitted to half of the numbers of heads; "
    "windows have none of their own, and are held out. fp8 caches and pages have no words in the language. "
    "FlashAttention-4 has heads of 512 columns alone, 2 or 8 of a key, and nothing was fitted to it: each of the two "
    "would be judged by its twin. 8 to 512 sequences of less than 4,096 keys take 15 us, 1.7 us each and 4 to 6 ns "
    "times their square, however few keys there are, as if each block looked through all sequences and split short "
    "keys like the longest; 1,024 take a tenth of what 512 do. No term of attention here is of that form. Kernel "
    "flashinfer, which TensorRT-LLM takes for such heads and for heads of 256 with a window, has no constants of its "
    "own either.",
    "Experts of a mixture are two grouped GEMMs and three row-wise kernels as a graph has them, each with its start, "
    "against what TensorRT-LLM times of one rank with even loads: sort, cast, products, activation, where the rows of "
    "all tokens are read and written. Constants are fitted to half of the models, of cutlass on Blackwell to all of "
    "their rows, of bf16 and of fp8 (cutlass) on H100 to 300 and of fp8_block to 351; the other half is held out. "
    "Two releases of one framework differ by 7%, two frameworks by 10-15%. A tenth of the "
    "bf16 rows on H100 take 2 to 4 times as long as shapes beside them: their kernel is another one. Of nvfp4 "
    "52 of 124 layouts of models fitted on B200 take 1.15 to 1.9 times as long as on GB300, the others 1.05 times. "
    "It is much the same for all sizes of one layout, and nothing of the shape says which: no constants explain it. "
    "So B200 has those of GB300, with one factor fitted to the others. "
    "The hottest experts are those of the rank with most rows by a power law of 1.2, each time the mean of five draws: "
    "the table's and ours. No constant is fitted to them, and all are of models that none was fitted to. A rank looks "
    "at the choices of all tokens for its own, which takes 0.18 to 0.42 ns each on Blackwell and is fitted too. "
    "Of bf16 and fp8 on H100 it made held-out groups no better and is left out. Kernels without a gate have no "
    "constants of their own, and are 14% to 22% off.",
    "A GEMM beside copies was measured on one H100, its constants fitted to the group that says so. Held-out rows are "
    "of three other shapes. A GEMM that memory limits is too fast beside copies: its fitted form leaves a tenth of "
    "memory free, and real ones do not.",
    "GEMMs by how they are timed and kernels of one tile were measured on one H100, with no constant fitted to them. "
    "The form is the time in a graph on a GPU that has rested. XLA's table of small GEMMs has 2.8 us more than such a "
    "graph at the median: its own launch. At the power limit large GEMMs take 9% to 17% longer, at 1.1 to 1.35 GHz: "
    "tables of long runs have that in them. There fewer SMs run at a higher clock, which the form does not have.",
    "A persistent kernel in Triton with the best of four tiles, which looks at flags, takes 1.02 times as long as the "
    "library's from 100 GFLOP on and 1.11 times below, at the median: that is what a kernel of one's own costs in its "
    "GEMM.",
    "Kernels with copying SMs are simulated with each number of SMs that was tried; the number is a count, not a time. "
    "Their tile is the one of their source, 128 x 256: of few rows that are gathered the last tiles begin when all is "
    "there, and one takes 22 us for an inner dimension of 2048. The smallest is 14 us too short.",
    "No row was dropped as an outlier; GEMMs above the peak of their GPU, and times 100 times as long or short as "
    "predicted, are no times. All figures are of one harness per operation: another harness on the same GPU differs by "
    "10-17% for GEMMs, and by 40-60% for collectives below 1 MiB.",
    "Simulated copies by SMs are limited by their SMs and by the link. On H100 the closed form ends before that, at "
    "315 GB/s, which is what DeepEP's kernel reaches from 20 SMs on; copies by SMs of nvbandwidth reach 365 to 394. "
    "With the limit in the simulator too, flux's GEMM+RS of 4096 rows on H800 would be 14.0% off and not 2.9%: so it "
    "is left to the closed form.",
)


MEASURED_RANKS = (8, 4, 2)


def early_switches(gpus: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each GPU and operation with an early switch, for the largest number of GPUs."""
    for name in gpus:
        gpu = profile_of(name)
        if gpu is not None and gpu.collectives is not None:
            for operation in NcclCollective:
                yield from _sentence(gpu, operation)


def _sentence(gpu: Gpu, operation: NcclCollective) -> Iterator[str]:
    for ranks in MEASURED_RANKS:
        try:
            switch = early_switch(gpu, operation, ranks)
        except ValueError:
            return  # the profile has no such operation
        if switch is not None:
            gain = f"pays from {bytes_text(switch.pays_from_bytes)} on"
            gain = gain if switch.pays_from_bytes < NEVER_BYTES else "never pays"
            yield (
                f"{gpu.name} {operation.value} on {ranks} GPUs: {switch.taken.protocol.value} from "
                f"{bytes_text(switch.from_bytes)} on takes {switch.taken.us:.0f} us there, "
                f"{switch.better.protocol.value} would take {switch.better.us:.0f}; it {gain}"
            )
            return
