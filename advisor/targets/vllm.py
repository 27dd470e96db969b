"""From how many tokens on vLLM shards activations and fuses GEMMs with their collectives: a file for ``--config``.

Its passes fuse all pairs as async-TP of PyTorch does. ``sp_min_token_num`` is the least number of rows among those that
were asked from which that pays. vLLM has one threshold for all layers. Its own table knows H100 alone; without a
threshold it fuses nothing.
"""

import json
from dataclasses import dataclass

from ...compiler.ir import Pattern
from ..answer.switches import first_paying
from ..candidates.advice import Advice
from ..implementations.predict import Promise
from ..layers.transformer_engine import te_layers
from ..policy.table import PolicyTable, SweepPoint
from .base import Options, Target, comments, heading, refused, settings_text
from .settings import nearest_of

NAME = "torch_async_tp"
PATTERNS = (Pattern.AG_GEMM, Pattern.GEMM_RS)


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The answer for a number of tokens."""

    where: str
    tokens: int
    advice: Advice

    @property
    def promise(self) -> Promise:
        """What fusion gains."""
        offer = self.advice.offer(NAME)
        if offer is None:
            message = f"{self.where}: what async-TP of PyTorch takes is not known on {self.advice.scenario.gpu.name}"
            raise refused(message, self.unknown or "it is known in bf16, fp16 and fp8, for H100, H200, B200 and B300")
        return offer.promise

    @property
    def unknown(self) -> str:
        """Of which op nothing is known, and why; empty if of none."""
        left_out = () if self.advice.offers is None else self.advice.offers.unknown
        return next((each.reason for each in left_out if each.name == NAME), "")

    @property
    def why(self) -> str:
        """What was found."""
        library = "" if self.advice.offers is None else f" over {self.advice.offers.library}"
        gains = f"{self.promise.speedup:.2f}x{library}; the recommended schedule {self.advice.speedup:.2f}x"
        return f"{self.where}: fused {gains}" + (
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
    why = comments(*(point.why for point in points))
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
        hint = nearest_of("vllm", point) or f"it has one for {' and '.join(each.value for each in PATTERNS)}"
        raise refused(f"vLLM has no pass for {does or 'kernels alone'}", hint)
    return max(rows)


VLLM = Target("vllm", "the passes of vLLM, for vllm serve --config", _write)
