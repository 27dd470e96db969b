"""How GPUs share a layer: attention among some, or by data, and experts; as a framework shares it.

Where collectives of experts are follows the framework: vLLM's ``fused_moe/config.py`` and its page on expert parallel
deployment (``allgather_reducescatter``), SGLang's page on expert parallelism (no all-to-all backend), Megatron-Core's
token dispatcher ``alltoall``, and TensorRT-LLM's exchange over NVLink of GB200: ``frameworks.toml`` has it.
"""

from dataclasses import dataclass
from enum import Enum

from ..codes import Code
from ..request.request import RequestError, shipped_gpu
from .frameworks import framework_named


class Experts(Enum):
    """Which experts a rank has, and how rows get there.

    SENT: experts of its own, by dispatch and combine. OWN: experts of its own, of rows that all ranks hold. SLICED: a
    part of the columns of every expert, of rows that all ranks hold.
    """

    SENT = "sent"
    OWN = "own"
    SLICED = "sliced"


@dataclass(frozen=True, slots=True)
class Parallelism:
    """``ranks`` GPUs named ``gpu`` that share each layer, with or without sequence parallelism; ``node`` are in one.

    With ``own_tokens`` each rank attends to sequences of its own, with whole weights, and experts alone are shared.
    ``framework`` is the one that shares so, empty if none was named. With ``keys`` a token is the next of a sequence
    with so many, in decode. With ``flat_weights`` ranks with tokens of their own hold equal parts of all weights but
    those of experts, and gather them. More than one of ``groups`` share attention each, with tokens of their own, and
    experts all together. The tokens of a prefill are of so many ``sequences``, equally long ones; None is one of all
    ranks, or of each that has tokens of its own. One rank shares nothing, and has no collectives.
    """

    gpu: str
    ranks: int
    sequence: bool = True
    node: int = 8
    experts: Experts = Experts.SENT
    own_tokens: bool = False
    framework: str = ""
    keys: int | None = None
    flat_weights: bool = False
    groups: int = 1
    sequences: int | None = None

    @property
    def attention_ranks(self) -> int:
        """The ranks that share attention."""
        return self.ranks // self.groups

    @property
    def rows(self) -> str:
        """The rows of the ranks that share attention, in words of the file."""
        return "M" if self.groups == 1 else f"M / {self.groups}"

    @property
    def place(self) -> str:
        """The ranks of a workload of all, in words of the file; one rank is a group of a node of two."""
        return "node" if self.ranks > 1 else "node.tp"

    @property
    def own_sequences(self) -> int:
        """The sequences of a prefill of the ranks that share attention."""
        return 1 if self.sequences is None else self.sequences // (self.ranks if self.own_tokens else self.groups)

    @property
    def trains(self) -> bool:
        """Whether a backward pass is asked about."""
        return self.keys is None and (not self.framework or framework_named(self.framework).trains)

    @property
    def attention_by(self) -> str:
        """The framework whose own kernels of attention run; empty where those of the profile do."""
        known = framework_named(self.framework).attention if self.framework else ()
        return self.framework if shipped_gpu(self.gpu).name in known else ""

    @property
    def nodes(self) -> int:
        """The number of nodes; GPUs that do not fill one are one."""
        return max(1, self.ranks // self.node)

    @property
    def by_rows(self) -> bool:
        """Whether each rank holds rows of its own between products."""
        return self.sequence or self.own_tokens

    @property
    def sharing(self) -> Experts:
        """How experts are shared: what all ranks hold is not sent."""
        return Experts.OWN if self.experts is Experts.SENT and not self.by_rows else self.experts


def parallelism_for(framework: str, gpu: str, tp: int, dp: int, ep: int, node: int) -> Parallelism:
    """Return how ``framework`` shares a layer: attention among ``tp`` GPUs or by data among ``dp``, experts by ``ep``.

    Raises
    ------
    RequestError
        If there is no such framework or GPU, or groups of ranks would share differently.
    """
    ranks, own, facts = tp * dp, dp > 1, framework_named(framework)
    if tp > 1 and own and not facts.in_groups:
        message = f"with {facts.title} {dp} groups of {tp} GPUs that share attention are not written"
        hint = f"nearest is --tp 1 --dp {ranks}, which has experts on all of them too; else --tp {ranks}"
        raise RequestError(Code.MGS520, "dp", message, hint)
    if ranks < 2:
        raise RequestError(Code.MGS307, "tp", "one GPU shares nothing", "take --tp 8, or --tp 1 --dp 8")
    if ep not in (1, ranks):
        message = f"experts in groups of {ep} of {ranks} GPUs are not simulated"
        raise RequestError(Code.MGS520, "ep", message, f"take --ep 1 or --ep {ranks}")
    if tp > 1 and own and ep == 1:
        message = f"experts that {dp} groups of {tp} GPUs share by columns are not written"
        raise RequestError(Code.MGS520, "ep", message, f"take --ep {ranks}")
    sends = facts.sends(shipped_gpu(gpu).name, own_tokens=own)
    experts = Experts.SLICED if ep == 1 else Experts.SENT if sends else Experts.OWN
    if tp > 1 and own:
        return Parallelism(gpu, ranks, True, node, experts, framework=framework, groups=dp)
    flat = own and facts.shares_weights
    return Parallelism(gpu, ranks, facts.by_rows and not own, node, experts, own, framework, flat_weights=flat)
