"""Settings of frameworks and compilers: what pays of what each can switch on, as lines to copy.

A switch is written where it pays at all points of the sweep; one with a threshold where it pays from a size on. The
gain in the file is that of what is written, over what the framework runs without. Where nothing pays the nearest is
named. ``frameworks.toml`` has the settings.
"""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...compiler.from_model.frameworks import FrameworkSwitch, Need, framework_named
from ...compiler.ir import OpCase, Pattern, Scenario
from ...compiler.planning.build import ScheduleError
from ...compiler.planning.knobs.library import library_serial
from ...compiler.resolve.schedules.implementation import shipped_implementations
from ..answer.switches import (
    Switched,
    best_first,
    first_paying,
    is_tensor_parallel,
    sizes_of,
    switched,
    weights_gathered,
    with_whole_activations,
)
from ..candidates.advice import Advice
from ..implementations.predict import Promise, simulated_us
from ..layers.transformer_engine import te_layers
from ..policy.table import PolicyTable, SweepPoint
from .base import Options, Target, comments, heading, refused, settings_text

MIB = 1 << 20


def needs_met(scenario: Scenario) -> frozenset[Need]:
    """Return what switches may need of a layer: how it is shared follows from its collectives."""
    shared = bool(weights_gathered(scenario))
    by_tp = is_tensor_parallel(scenario)
    by_ep = any(case.shape.routing is not None for case in scenario.cases)
    met = {Need.TP: by_tp, Need.EP: by_ep, Need.DP: shared or (by_ep and not by_tp), Need.SHARED: shared}
    return frozenset({Need.TRAIN, Need.SERVE, *(need for need, is_met in met.items() if is_met)})


def switched_at(name: str, point: SweepPoint) -> tuple[Switched, ...]:
    """Return what the framework of that ``name`` can switch on at a point, what pays first."""
    framework, scenario = framework_named(name), point.advice.scenario
    shapes = [case.shape for case in scenario.cases]
    dtypes = {each.dtype.value for shape in shapes for each in (shape.gemm, shape.moved) if each is not None}
    met = needs_met(scenario)
    fitting = (
        each
        for each in framework.switches
        if met.issuperset(each.needs) and all(each.fits(scenario.gpu.name, dtype) for dtype in dtypes)
    )
    found = (switched(framework, each, [point.advice]) for each in fitting)
    return best_first(each for each in found if each is not None)


def nearest_of(name: str, point: SweepPoint) -> str:
    """Return the best that a framework can switch on at a point, in words; empty if nothing is known."""
    best = next(iter(switched_at(name, point)), None)
    if best is None:
        return ""
    does = "pays" if best.pays else "does not pay"
    return f"nearest is {best.switch.what}, {best.promise.speedup:.2f}x, which {does}: {best.setting}"


@dataclass(frozen=True, slots=True)
class _Written:
    """A switch that pays, with its gains from the first point on."""

    first: Switched
    gains: tuple[str, ...]


def _written(name: str, table: PolicyTable) -> Iterator[_Written]:
    """What pays at all points, or from one on where the switch has a threshold.

    Raises
    ------
    Refused
        If a switch without a threshold pays at some points alone, or one with a threshold not at larger ones.
    """
    points = sorted(table.points, key=lambda point: sizes_of(point.advice.scenario).tokens)
    at = [(settings_text(point), {each.switch: each for each in switched_at(name, point)}) for point in points]
    for switch in framework_named(name).switches:
        known = [(where, found[switch]) for where, found in at if switch in found]
        first, lost = first_paying([each.pays for _, each in known])
        if first == len(known):
            continue
        has_threshold = switch.says_from or "TOKENS" in switch.setting
        lost = 0 if lost is None and first and not has_threshold else lost
        if lost is not None:
            message = f"{switch.what} pays at {known[first][0]}, and not at {known[lost][0]}"
            raise refused(message, "a run has one setting: sweep the sizes of one alone")
        gains = [f"{where}: {each.promise.speedup:.2f}x over today{_sure(each)}" for where, each in known[first:]]
        if switch.says_from:
            gains.append(_from(known[first][1], known[first - 1][0] if first else ""))
        yield _Written(known[first][1], tuple(gains))


def _from(first: Switched, slower: str) -> str:
    """From how many tokens on it pays, and where it does not, in words: a threshold that is to be kept by hand."""
    least = f"pays from {first.sizes.tokens} tokens of a step on, {first.sizes.own_tokens} of each GPU"
    return f"{least}, and not at {slower}: leave it out where steps are smaller" if slower else least


def _sure(each: Switched) -> str:
    interval = each.promise.interval
    if interval is None:
        return f", error not measured{f', {each.promise.outside}' if each.promise.outside else ''}"
    return f" ({interval[0]:.2f}x to {interval[1]:.2f}x)"


def _lines(name: str, table: PolicyTable, written: Sequence[_Written], target: str = "") -> str:
    """The comments of a file: who wrote it, as ``target`` or by the name of the framework, and why.

    Raises
    ------
    Refused
        If nothing is written.
    """
    framework = framework_named(name)
    if not written:
        hint = nearest_of(name, table.points[-1]) or f"it has {_all_of(framework.switches) or 'none'}"
        raise refused(f"nothing that {framework.title} can switch on pays here", hint)
    why = [f"{each.first.switch.what}: {'; '.join(each.gains)}" for each in written]
    costs = [f"costs: {each.first.switch.costs}" for each in written]
    return heading(table, target or name) + comments(f"{framework.title} {framework.version}", *why, *costs)


def _all_of(switches: Sequence[FrameworkSwitch]) -> str:
    return ", ".join(each.what for each in switches)


def _framework(name: str) -> Target[PolicyTable]:
    """The settings of one framework."""

    def write(table: PolicyTable, options: Options) -> str:
        written = tuple(_written(name, table))
        return _lines(name, table, written) + "".join(f"{each.first.setting}\n" for each in written)

    return Target(name, f"what {framework_named(name).title} should switch on, as options", write)


SGLANG, TORCHTITAN, DEEPSPEED = (_framework(name) for name in ("sglang", "torchtitan", "deepspeed"))


def _write_xla(table: PolicyTable, options: Options) -> str:
    """Flags of XLA: latency hiding, combined gathers of a layer's weights, and products beside their shards."""
    written = tuple(_written("maxtext", table))
    flags = [word for each in written for word in shlex.split(each.first.setting.removeprefix("XLA_FLAGS="))]
    flags = [flag for joined in flags for flag in joined.split()]
    threshold = _einsum_threshold(table.points)
    if threshold is not None:
        flags = [flag for flag in flags if "windowed_einsum_mib" not in flag]
        flags.append(f"--xla_gpu_threshold_for_windowed_einsum_mib={threshold}")
    if any("latency_hiding" in flag for flag in flags):
        flags.append("--xla_gpu_experimental_parallel_collective_overlap_limit=1")  # one at a time, as simulated
    return _lines("maxtext", table, written, "xla") + f"XLA_FLAGS='{' '.join(flags)}'\n"


def _einsum_threshold(points: Sequence[SweepPoint]) -> int | None:
    """The MiB of the result from which all products gain by rings; None where no ring was simulated, 0 if all gain."""
    gains: list[tuple[int, bool]] = []
    for point in points:
        for case in point.advice.scenario.cases if point.advice.offer("xla") is not None else ():
            us = _ring_and_library(case) if case.shape.pattern in (Pattern.AG_GEMM, Pattern.GEMM_RS) else None
            if us is not None and case.shape.gemm is not None:
                gains.append((case.shape.gemm.output_bytes // MIB, us[0] < us[1]))
    if not any(gain for _, gain in gains):
        return None
    lost = max((size for size, gain in gains if not gain), default=-1)
    return lost + 1


def _ring_and_library(case: OpCase) -> tuple[float, float] | None:
    """The times of one op by a ring of shards and by the library, both without calls; None where unknown."""
    xla = next((each for each in shipped_implementations(case.system) if each.name == "xla"), None)
    method = None if xla is None else xla.method_of(case.shape)
    if method is None:
        return None
    try:
        return simulated_us(case, method.choice), simulated_us(case, library_serial(case))
    except ScheduleError:
        return None


XLA = Target("xla", "flags of XLA for a layer: XLA_FLAGS", _write_xla)


def _write_inductor(table: PolicyTable, options: Options) -> str:
    """Options of TorchInductor: async-TP where it pays, else its overlap scheduler with the times of this machine."""
    written = tuple(_written("torchtitan", table))
    scenario = table.points[0].advice.scenario
    gathers = weights_gathered(scenario)
    lines = ["from torch._inductor import config"]
    if any(each.first.switch.offer == "torch_async_tp" for each in written):
        lines.append("config._micro_pipeline_tp = True")
    elif not gathers:
        hint = nearest_of("torchtitan", table.points[-1]) or "it is about weights that a layer gathers, and async-TP"
        raise refused("nothing that TorchInductor reorders pays here", hint)
    if gathers:
        products = sum(case.shape.gemm is not None for case in scenario.cases)
        times = f"Oracle(gpu={scenario.gpu.name!r}, ranks={scenario.num_ranks}).inductor()"
        scheduler = {
            "enable_overlap_scheduling": True,
            "collective_bucketing": len(gathers) > 1,
            "max_compute_pre_fetch": products,
            "insert_overlap_deps": True,
        }
        lines[1:1] = ["from magus.advisor import Oracle", "options = config.aten_distributed_optimizations"]
        lines += [f"options.{name} = {value}" for name, value in scheduler.items()]
        lines.append(f"options.custom_runtime_estimation = {times}")
    why = [f"{each.first.switch.what}: {'; '.join(each.gains)}" for each in written]
    ahead = (
        f"{len(gathers)} gathers of a layer in one bucket, beside the products of the layer before" if gathers else ""
    )
    return heading(table, "inductor") + comments(*why, *([ahead] if ahead else [])) + "\n".join(lines) + "\n"


INDUCTOR = Target("inductor", "options of TorchInductor, as Python", _write_inductor)


# From how many tokens on vLLM shards activations and fuses GEMMs with their collectives: a file for ``--config``.
#
# Its passes fuse all pairs as async-TP of PyTorch does. ``sp_min_token_num`` is the least number of rows among those
# that were asked from which that pays. vLLM has one threshold for all layers. Its own table knows H100 alone; without a
# threshold it fuses nothing.

NAME = "torch_async_tp"
PATTERNS = (Pattern.AG_GEMM, Pattern.GEMM_RS)


_ASK = "magus ask --for vllm compares these with the all_reduce that runs without them"
_OVER = "gains are over the all_reduce that runs without these passes"
_OF_PART = f"gains are over all_gather and reduce_scatter of the library, for this is a part of a layer; {_ASK}"


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The answer for a number of tokens."""

    where: str
    tokens: int
    advice: Advice

    @property
    def promise(self) -> Promise:
        """What fusion gains over what runs today."""
        vllm = framework_named("vllm")
        found = switched(vllm, next(each for each in vllm.switches if each.offer == NAME), [self.advice])
        if found is None:
            message = f"{self.where}: what async-TP of PyTorch takes is not known on {self.advice.scenario.gpu.name}"
            raise refused(message, self.unknown or "it is known in bf16, fp16 and fp8, for H100, H200, B200 and B300")
        return found.promise

    @property
    def of_layer(self) -> bool:
        """Whether what runs today is known: the all_reduce in place of both collectives."""
        return with_whole_activations(self.advice.scenario) is not None

    @property
    def unknown(self) -> str:
        """Of which op nothing is known, and why; empty if of none."""
        left_out = () if self.advice.offers is None else self.advice.offers.unknown
        return next((each.reason for each in left_out if each.name == NAME), "")

    @property
    def why(self) -> str:
        """What was found."""
        library = "" if self.advice.offers is None else f" over {self.advice.offers.library}"
        over = " over today" if self.of_layer else library
        gains = f"{self.promise.speedup:.2f}x{over}; the recommended schedule {self.advice.speedup:.2f}x"
        return f"{self.where}: fused {gains}{library if self.of_layer else ''}" + (
            f"; {self.unknown}, and counts as the library's" if self.unknown else ""
        )


def _write(table: PolicyTable, options: Options) -> str:
    points = sorted(_points(table), key=lambda point: point.tokens)
    first, lost = first_paying([point.promise.pays for point in points])
    if lost is not None:
        message = f"fusion pays from {points[first].where} on, and no longer at {points[lost].where}"
        raise refused(message, "vLLM has one threshold: sweep the rows above")
    config: dict[str, bool | int] = {"enable_sp": first < len(points), "fuse_gemm_comms": first < len(points)}
    if first < len(points):
        config["sp_min_token_num"] = points[first].tokens
    text = json.dumps({"pass_config": config})
    why = comments(*(point.why for point in points), _OVER if all(each.of_layer for each in points) else _OF_PART)
    return f"{heading(table, 'vllm')}{why}compilation-config: '{text}'\n"


def _points(table: PolicyTable) -> list[_Tokens]:
    workload = table.points[0].advice.scenario.workload
    if table.is_several and any(layer.backward for layer in te_layers(workload)):
        raise refused(
            f"{workload.name} is a backward pass, which vLLM has not", "export the forward pass: --workload W"
        )
    return [_Tokens(settings_text(point), _tokens(point), point.advice) for point in table.points]


def _tokens(point: SweepPoint) -> int:
    """Rows of the products that are fused, the tokens of a step.

    Raises
    ------
    Refused
        If there are none.
    """
    workloads = [case.shape for case in point.advice.scenario.cases]
    rows = [each.gemm.m for each in workloads if each.pattern in PATTERNS and each.gemm is not None]
    if not rows:
        does = ", ".join(dict.fromkeys(each.label for each in workloads if each.moved is not None))
        has = f"it has one for {' and '.join(each.value for each in PATTERNS)}"
        sums = any(case.shape.pattern in (Pattern.ALL_REDUCE, Pattern.GEMM_AR) for case in point.advice.scenario.cases)
        hint = nearest_of("vllm", point) or (f"{has}: activations by rows; {_ASK}" if sums else has)
        raise refused(f"vLLM has no pass for {does or 'kernels alone'}", hint)
    return max(rows)


VLLM = Target("vllm", "the passes of vLLM, for vllm serve --config", _write)
