"""Frameworks that ship, by name: how they share a layer, which collectives stand in it, and what can be switched on.

What is known is in ``frameworks.toml``; a key that is missing there or has no meaning is an error, and a test reads
all of it and looks at the types.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import Any

from ..codes import Code
from ..request.request import RequestError, shipped_gpu


class Need(Enum):
    """When a switch can be had: GPUs above 1 that share attention, tokens or experts; what is done; and the layers.

    SHARED: weights are held in parts and gathered before they are taken.
    """

    TP = "tp"
    DP = "dp"
    EP = "ep"
    TRAIN = "train"
    SERVE = "serve"
    SHARED = "shared_weights"


@dataclass(frozen=True, slots=True)
class FrameworkSwitch:
    """Something that a framework can switch on.

    Attributes
    ----------
    offer
        The implementation or the order of a whole layer whose gain is its own.
    what
        What it is, in words.
    setting
        What to write. ``TOKENS`` stands for the tokens from which it pays, ``ELEMENTS`` and ``BYTES`` for the weights
        of a layer.
    costs
        What it takes besides.
    needs
        When it can be had.
    sequence, exchange
        Whether activations are then held by rows, and whether rows then go to their experts by dispatch and combine.
    gpus, dtypes
        Those that it is for, all if empty.
    else_runs
        What runs where it is switched on and cannot be; empty where that is an error.
    on_up_to
        Elements of the weights of a layer up to which it is on by default.
    says_from
        Whether a file says beside it from how many tokens it pays: the framework switches on all steps or none.
    """

    offer: str
    what: str
    setting: str
    costs: str
    needs: tuple[Need, ...]
    sequence: bool = False
    exchange: bool = False
    gpus: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    else_runs: str = ""
    on_up_to: int = 0
    says_from: bool = False

    def fits(self, gpu: str, dtype: str) -> bool:
        """Whether it is for a GPU of that name and for weights of that type."""
        return (not self.gpus or gpu in self.gpus) and (not self.dtypes or dtype in self.dtypes)


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework, and what it runs.

    Attributes
    ----------
    title, version, source
        What it is called, the version of which this is known, and where it stands.
    release
        The number of that version, empty of a branch that has none.
    today, today_with_dp
        The collectives that stand in a layer; the latter where GPUs have tokens of their own.
    all_reduce
        The family of its small all_reduce kernels, empty if it has none.
    switches
        What it can switch on, in the order in which one would try.
    with_experts
        What stands there besides where a model has experts.
    serves, trains
        Whether it is asked about prefill and decode, and about training.
    by_rows
        Whether activations are held by rows between products that GPUs share.
    exchanges
        Where experts get their rows by dispatch and combine: ``all``, or the names of GPUs where attention is by data.
    shares_weights
        Whether GPUs with tokens of their own hold parts of the weights and gather them.
    in_groups
        Whether groups of GPUs may share attention, each with tokens of its own, and all of them experts.
    default
        The offer that it runs by default where it can be had, empty for the calls of the library.
    tp_flag, dp_flag, ep_flag
        What to write where GPUs share attention, groups have tokens of their own, and GPUs share whole experts.
        ``TP``, ``DP`` and ``EP`` stand for their numbers, ``GPUS`` for that of all, which ``dp_flag`` says for both.
    attention
        GPUs whose profiles have constants of attention by its own kernels.
    dense
        Whether its layers have no experts.
    """

    name: str
    title: str
    version: str
    source: str
    today: str
    today_with_dp: str
    all_reduce: str
    switches: tuple[FrameworkSwitch, ...]
    with_experts: str = ""
    serves: bool = False
    trains: bool = False
    by_rows: bool = False
    exchanges: tuple[str, ...] = ()
    shares_weights: bool = False
    in_groups: bool = False
    default: str = ""
    tp_flag: str = ""
    dp_flag: str = ""
    ep_flag: str = ""
    attention: tuple[str, ...] = ()
    dense: bool = False
    release: str = ""

    def runs(self, *, dp: int, experts: int) -> str:
        """The collectives that stand in a layer today."""
        today = self.today_with_dp if dp > 1 else self.today
        return f"{today}, {self.with_experts}" if self.with_experts and experts else today

    def sends(self, gpu: str, *, own_tokens: bool) -> bool:
        """Whether rows go to their experts by dispatch and combine on a GPU of that name."""
        return self.exchanges == ("all",) or (own_tokens and gpu in self.exchanges)


@cache
def frameworks() -> Mapping[str, Framework]:
    """All frameworks by their names."""
    table = tomllib.loads(files(__package__).joinpath("frameworks.toml").read_text(encoding="utf-8"))
    return {name: _framework(name, **facts) for name, facts in table.items()}


def _framework(name: str, switches: list[dict[str, Any]], **facts: Any) -> Framework:
    """A framework, of what TOML says: lists, and the values of enumerations."""
    found = [_tuples(switch | {"needs": [Need(need) for need in switch["needs"]]}) for switch in switches]
    return Framework(name, **_tuples(facts), switches=tuple(FrameworkSwitch(**each) for each in found))


def _tuples(facts: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in facts.items()}


def framework_named(name: str) -> Framework:
    """Return what is known of a framework, of which ``name`` may say the version: ``vllm@0.11``.

    Raises
    ------
    RequestError
        If nothing is, as of versions that are older.
    """
    known, (called, at, version) = frameworks(), name.partition("@")
    if called not in known:
        raise RequestError(Code.MGS203, "for", f"'{called[:40]}' is no framework that is known", _meant(called, known))
    facts = known[called]
    if at and version != _BRANCH and not _RELEASE.fullmatch(version):
        instance = f"for instance {called}@{facts.release or _BRANCH}"
        raise RequestError(Code.MGS203, "for", f"'{version[:40]}' is no version of {facts.title}", instance)
    if at and _order(facts, version) < 0:
        message = f"nothing is known of {facts.title} {version[:40]}, which is older than {facts.release}"
        hint = f"{called} alone says what {facts.version} does, which older ones may not have"
        raise RequestError(Code.MGS203, "for", message, hint)
    return facts


def version_doubt(name: str) -> str:
    """What to know of the version that ``name`` says, empty if it says none or the one that is known."""
    facts, version = framework_named(name), name.partition("@")[2]
    if not version or _order(facts, version) == 0:
        return ""
    return f"this is known of {facts.version}: options and defaults of {facts.title} {version[:40]} may differ"


_BRANCH = "main"
_RELEASE = re.compile(
    r"(?:core_)?v?(\d{1,6}(?:\.\d{1,6}){0,3})(?:[.-]?(?:rc|post|dev|a|b)\d{0,6}){0,3}(?:\+[a-z\d.]{1,20})?", re.ASCII
)
"""As tags and packages say it: ``core_v0.14.0``, ``0.11.2rc1.dev15+cu129``."""


def _order(facts: Framework, version: str) -> int:
    """Below 0 if a version is older than the one that is known, above if it is newer or has no place before it."""
    said = _RELEASE.fullmatch(version)
    if said is None:
        return 0 if facts.version.startswith(_BRANCH) else 1
    if not facts.release:
        return 1
    known = [int(part) for part in facts.release.split(".")]
    parts = ([int(part) for part in said[1].split(".")] + [0] * len(known))[: len(known)]
    return (parts > known) - (parts < known)


def _meant(name: str, known: Mapping[str, Framework]) -> str:
    """What to say instead: a framework that is called so, or one that switches on what is called so."""
    said = _letters(name)
    titled = [key for key, each in known.items() if said == _letters(each.title)]
    switches = {key: " ".join(_letters(switch.what) for switch in each.switches) for key, each in known.items()}
    holding = [key for key, words in switches.items() if len(said) > 2 and said in words]
    if holding and not titled:
        return f"it is switched on in {' and '.join(holding)}"
    near = titled or get_close_matches(name, known, 1, 0.5)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.lower()))


# How GPUs share a layer: attention among some, or by data, and experts; as a framework shares it.
#
# Where collectives of experts are follows the framework: vLLM's ``fused_moe/config.py`` and its page on expert parallel
# deployment (``allgather_reducescatter``), SGLang's page on expert parallelism (no all-to-all backend), Megatron-Core's
# token dispatcher ``alltoall``, and TensorRT-LLM's exchange over NVLink of GB200: ``frameworks.toml`` has it.


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
        facts = framework_named(self.framework) if self.framework else None
        return facts.name if facts is not None and shipped_gpu(self.gpu).name in facts.attention else ""

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
