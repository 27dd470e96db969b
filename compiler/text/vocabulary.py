"""The words of the language: properties with their ranges, operations, template arguments and clauses.

A new property of a GPU is one row here and a field of its dataclass, named after it and its unit: a row ``setup`` of
time fills ``setup_ticks``. A new block is an entry of ``GPU_BLOCKS`` and a field that is a dataclass.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from ..ir import CopyProtocol, SumForm
from .units import BYTES, FLOP, FLOP_RATE, FREQUENCY, NUMBER, RATE, TIME, Dimension

CHUNKS_PER_RANK = 8

MAX_RANKS = 65_536
MAX_DOMAIN_VALUES = 4096
MAX_EXTENT = 1 << 31
MAX_STREAMS = 64
MAX_BATCHES = 4
MAX_GROUPS = 32
MAX_PREFETCH = 8
MAX_TILES = 64
MAX_LAYERS = 4096


@dataclass(frozen=True, slots=True)
class Property:
    """A number in a block; both ends of the range are legal.

    The numbers of a block that are not required are given all together or not at all, except those that stand
    ``alone``.
    """

    name: str
    dimension: Dimension
    low: Fraction
    high: Fraction
    whole: bool = False
    required: bool = True
    alone: bool = False


def _count(name: str, high: int = 1 << 20) -> Property:
    return Property(name, NUMBER, Fraction(1), Fraction(high), whole=True)


def _size(name: str, high: int = 1 << 50) -> Property:
    return Property(name, BYTES, Fraction(1), Fraction(high), whole=True)


def _alone(name: str, dimension: Dimension, high: Fraction | int, low: int = 1) -> Property:
    """A number that a profile may leave out, independent of the others in its block."""
    return Property(name, dimension, Fraction(low), Fraction(high), whole=dimension != TIME, required=False, alone=True)


def _rate(name: str, required: bool = True) -> Property:
    return Property(name, RATE, Fraction(10**6), Fraction(10**15), required=required)


def _time(name: str, required: bool = True) -> Property:
    return Property(name, TIME, Fraction(0), Fraction(1, 100), required=required)


def _share(name: str, low: Fraction = Fraction(0), high: int = 1) -> Property:
    return Property(name, NUMBER, low, Fraction(high))


def _exponent(required: bool = True) -> Property:
    return Property("exponent", NUMBER, Fraction(1), Fraction(64), required=required)


_PERCENT = Fraction(1, 100)


def _shares(*names: str) -> tuple[Property, ...]:
    """Shares of a block that is given whole or not at all."""
    return tuple(Property(name, NUMBER, _PERCENT, Fraction(1), required=False) for name in names)


_GROUPED = (
    *(_time("start", required=False), _time("tile", required=False)),
    *(*_shares("mma", "hbm", "rows"), _exponent(required=False)),
    *(_alone(name, TIME, _PERCENT, low=0) for name in ("choice", "sort", "epilogue", "row")),
)
_ATTENTION = (
    *(_time(name, required=False) for name in ("start", "unit")),
    *_shares("mma", "softmax", "hbm"),
    Property("queries", NUMBER, Fraction(1), Fraction(1024), whole=True, required=False),
    *(_time(f"decode_{name}", required=False) for name in ("start", "unit", "block")),
    Property("decode_hbm", NUMBER, _PERCENT, Fraction(1), required=False, alone=True),
    *(_alone("packed", NUMBER, 1024), _alone("token", TIME, _PERCENT, low=0)),
    _alone("decode_packed", NUMBER, 1024),
    *(_alone(f"decode_{name}", TIME, _PERCENT, low=0) for name in ("head", "alone", "first", "split")),
    Property("decode_again", NUMBER, _PERCENT, Fraction(10), required=False, alone=True),
    Property("decode_least", NUMBER, _PERCENT, Fraction(10), required=False, alone=True),
)
PEAK = Property("peak", FLOP_RATE, Fraction(10**9), Fraction(10**18))
GPU_NUMBERS = (
    _count("sms", 4096),
    Property("clock", FREQUENCY, Fraction(10**6), Fraction(10**11), whole=True),
    Property("line", BYTES, Fraction(32), Fraction(4096), whole=True),
)
CACHE_NUMBERS = (_size("size"), _rate("bandwidth"), _time("latency"))
# The caches that `cache` describes, with the path of their numbers; only l2 is required.
CACHES: Mapping[str, str] = {"l2": "l2", "memory": "mall"}
GPU_BLOCKS: Mapping[str, tuple[Property, ...]] = {
    "hbm": (
        *(_size("capacity"), _rate("bandwidth"), _rate("achieved"), _time("latency")),
        *(_alone("channels", NUMBER, 1024), _alone("look_ahead", BYTES, 1 << 40)),
    ),
    "gemm": (
        _time("start"),
        _share("mma", _PERCENT),
        Property("hbm", NUMBER, _PERCENT, Fraction(2)),
        _time("tile"),
        _time("k_step"),
        _time("split"),
        _rate("split_bandwidth"),
        _exponent(),
        _share("quantisation"),
        Property("cluster", NUMBER, Fraction(1), Fraction(16), whole=True, required=False, alone=True),
        _alone("fewest_sms", NUMBER, 1024),
        _share("error", high=10),
        _share("resolution"),
    ),
    "dma": (
        _count("engines", 1024),
        _time("setup"),
        _rate("bandwidth"),
        *(_alone("outstanding", BYTES, 1 << 40), _alone("packet", BYTES, 1 << 40)),
        *(_alone(name, TIME, _PERCENT, low=0) for name in ("issue_interval", "packet_cost", "prelaunch")),
        *(_time(f"{phase}_phase", required=False) for phase in ("control", "schedule", "copy", "sync")),
    ),
    "sm_copy": (
        *(_rate("bandwidth"), _time("setup"), _rate("limit", required=False), _exponent(required=False)),
        _alone("outstanding", BYTES, 1 << 40),
    ),
    "noc": (
        Property("gemm_share", NUMBER, _PERCENT, Fraction(1), required=False),
        _rate("copy_bandwidth", required=False),
    ),
    "attention": _ATTENTION,
    "mla": _ATTENTION,
    "trtllm": _ATTENTION,
    "wide": _ATTENTION,
    "sustained": (_time("after", required=False), *_shares("clock")),
    "beside": tuple(Property(name, NUMBER, Fraction(0), Fraction(10), required=False) for name in ("dma", "sm")),
    "grouped": _GROUPED,
    "launch": (_time("kernel"), _time("event")),
    "sync": (
        *(_alone(f"monitor_{name}", TIME, _PERCENT, low=0) for name in ("arm", "wake")),
        *(_alone(name, TIME, _PERCENT, low=0) for name in ("poll_interval", "graph_launch")),
        _alone("monitor_entries", NUMBER, 1 << 20, low=0),
    ),
}
# Blocks of types inside blocks: constants of kernels of one type, all of them but those that stand alone.
TYPE_BLOCKS: Mapping[str, tuple[Property, ...]] = {
    "gemm": (
        *(each for each in GPU_BLOCKS["gemm"] if each.required),
        _alone("ragged", TIME, _PERCENT, low=0),
        Property("uneven", NUMBER, Fraction(0), Fraction(10), required=False, alone=True),
        _alone("sustained_after", TIME, Fraction(1, 100), low=0),
        Property("sustained_clock", NUMBER, _PERCENT, Fraction(1), required=False, alone=True),
    ),
    "grouped": _GROUPED,
}
_PROTOCOLS = (
    *(_time("start"), _time("ll_step"), _rate("ll_bandwidth")),
    *(_time("ll128_start"), _rate("ll128_bandwidth")),
    *(_time("simple_start"), _time("simple_step"), _rate("simple_bandwidth"), _size("simple_from")),
    _rate("own_bandwidth"),
)
# Blocks inside `collectives`; the empty name stands for its own numbers.
COLLECTIVES: Mapping[str, tuple[Property, ...]] = {
    "": (
        *(*_PROTOCOLS, _time("ll128_step"), _share("reduce_factor", _PERCENT, high=2), _share("error", high=10)),
        Property("link_bandwidth", RATE, Fraction(10**6), Fraction(10**15), required=False, alone=True),
        _alone("link_latency", TIME, _PERCENT, low=0),
        Property("links", NUMBER, Fraction(1), Fraction(MAX_RANKS), whole=True, required=False, alone=True),
    ),
    "nvls": (_time("start"), _rate("bandwidth"), _size("from"), _count("ranks", MAX_RANKS)),
    "all_to_all": _PROTOCOLS,
}
GPU_WORDS = ("source", "sms", "clock", "line", "peak", "cache", *GPU_BLOCKS, "collectives")
LINK_NUMBERS = (_rate("bandwidth"), _rate("achieved"), _time("latency"))
SWITCH_NUMBERS = (_count("ports", MAX_RANKS), _rate("bandwidth"), _time("latency"))
# Of a kernel that is written as what its work-groups do.
KERNEL_NUMBERS = (
    _count("groups", 1 << 16),
    _count("waves", 1 << 10),
    _size("request", 1 << 12),
    _count("chunks", 1 << 12),
)
LOOP_NUMBERS = (_count("load", 1 << 16), Property("waitcnt", NUMBER, Fraction(0), Fraction(1 << 16), whole=True))
KERNEL_LOOPS: Mapping[str, tuple[str, ...]] = {
    "put": ("load", "store"),
    "get": ("load", "waitcnt", "store", "reduce"),
}
PROGRAM_ACTIONS = ("load", "store", "reduce", "copy", "signal", "wait", "barrier")
PROGRAM_WORDS = (*PROGRAM_ACTIONS, "for", "groups")
PROGRAM_CLAUSES = ("from", "to", "group")
PROGRAM_BUFFERS = ("input", "output", "scratch")
PROGRAM_NUMBERS = ("ranks", "groups", "chunks", "self")
KERNEL_WORDS = (*(each.name for each in KERNEL_NUMBERS), "arbitration", *KERNEL_LOOPS, "program")
# Numbers of a block of an implementation. Without those of METHOD_REQUIRED there is no prediction.
METHOD_NUMBERS = (
    _alone("pieces", NUMBER, 1 << 10),
    Property("rate", NUMBER, _PERCENT, Fraction(1), required=False, alone=True),
    Property("limit", RATE, Fraction(10**6), Fraction(10**15), required=False, alone=True),
    *(_alone(name, TIME, _PERCENT, low=0) for name in ("call", "graph_call", "host", "barrier", "step", "shortest")),
    *(_alone(name, NUMBER, 1 << 20) for name in ("rereads_below", "most_rows")),
    _alone("most_ranks", NUMBER, MAX_RANKS),
    Property("rows_per_read", NUMBER, Fraction(1), Fraction(64), required=False, alone=True),
    _alone("library_below", FLOP, 10**18),
    Property("error", NUMBER, Fraction(0), Fraction(10), required=False, alone=True),
    *(_alone(f"{form.value}_{name}", TIME, _PERCENT, low=0) for form in SumForm for name in ("start", "step")),
    *(_alone(f"{form.value}_bandwidth", RATE, 10**15, low=10**6) for form in SumForm),
    *(_alone(f"exchange_{name}", TIME, _PERCENT, low=0) for name in ("start", "step", "expert", "row")),
    _alone("exchange_bandwidth", RATE, 10**15, low=10**6),
    *(_alone(f"exchange_{name}", NUMBER, MAX_RANKS) for name in ("least_ranks", "most_ranks", "least_top")),
)
# Numbers of one kernel for the experts of a layer; those that do not stand alone are needed.
EXPERTS_NUMBERS = (
    _time("start"),
    _alone("rank", TIME, _PERCENT, low=0),
    Property("flops", FLOP_RATE, Fraction(10**9), Fraction(10**18)),
    _rate("memory"),
    _exponent(),
    _count("block", 1024),
    Property("weight", NUMBER, Fraction(1, 8), Fraction(8)),
    *(_count(f"{name}_ranks", MAX_RANKS) for name in ("least", "most")),
    _alone("most_rows", NUMBER, 1 << 20),
    _alone("shortest", TIME, _PERCENT, low=0),
    Property("error", NUMBER, Fraction(0), Fraction(10), required=False, alone=True),
)
# What the stack of a framework adds to each layer of a training step.
STACK_NUMBERS = (
    *(
        Property(f"{direction}_{what}", NUMBER, Fraction(0), Fraction(10_000), required=False, alone=True)
        for what in ("rows", "scores", "experts")
        for direction in ("forward", "backward")
    ),
    Property("products", NUMBER, _PERCENT, Fraction(2), required=False, alone=True),
    Property("sends", NUMBER, Fraction(0), Fraction(16), required=False, alone=True),
    Property("error", NUMBER, Fraction(0), Fraction(10), required=False, alone=True),
)
METHOD_REQUIRED = ("rate", "call", "step")
# Sizes by the number of ranks, below which a framework's own kernel makes an all_reduce.
METHOD_SIZES = tuple(f"{form.value}_below" for form in SumForm)
# Words that links and switches take: a list of them, or one.
LINK_LISTS: Mapping[str, tuple[str, ...]] = {"protocols": tuple(protocol.value for protocol in CopyProtocol)}
LINK_CHOICES: Mapping[str, tuple[str, ...]] = {"ordered": ("yes", "no")}
SWITCH_CHOICES: Mapping[str, tuple[str, ...]] = {"multicast": ("yes", "no"), "reduces": ("yes", "no")}
STACK_CHOICES: Mapping[str, tuple[str, ...]] = {"plain_experts": ("yes", "no")}

SYNONYMS: Mapping[str, str] = {
    "cus": "sms",
    "sm": "sms",
    "cu": "sms",
    "bw": "bandwidth",
    "memory": "hbm",
    "vram": "hbm",
    "freq": "clock",
    "frequency": "clock",
    "lat": "latency",
    "topology": "fabric",
    "templates": "schedules",
    "template": "schedules",
    "quantization": "quantisation",
    "apart": "separate",
    "beside": "start",
    "seams": "handoff",
    "ahead": "prefetch",
    "late": "deferred",
    "along": "chained",
    "true": "yes",
    "false": "no",
}

SYSTEM_WORDS = ("gpus", "fabric", "variability", "replay", "traffic", "mesh")
VARIABILITY_WORDS = ("skew", "jitter", "straggler", "late")
TRAFFIC_WORDS = ("rank", "file")
BACKWARD_WORDS = ("backward", "keep")
WORKLOAD_WORDS = ("about", "repeat", "batch", *BACKWARD_WORDS)
SCHEDULE_WORDS = (
    *("separate", "order", "stream", "start", "priority", "handoff", "batches", "groups", "prefetch", "deferred"),
    "chained",
)
STEP_WORDS = ("about", "step", "sequences", "head", "optimizer")
STEP_SCHEDULE_WORDS = ("pipeline", "stages", "zero", "overlap", "keep", "context", "stack")
STEP_EXPLORE_WORDS = ("pipeline", "zero", "keep", "context", "memory")
TENSOR_WORDS = ("shard", "over")
OBJECTIVES = ("makespan",)
PLAN_ACTIONS = ("put", "get", "compute", "reduce")
PLAN_CLAUSES: Mapping[str, tuple[str, ...]] = {
    "put": ("of", "to", "signal", "after", "lane", "reduce"),
    "get": ("from", "signal", "after", "peer_after", "lane", "reduce"),
    "compute": ("k", "after", "stream", "accumulate"),
    "reduce": ("parts", "after", "stream"),
}

ALWAYS_THERE = ("best", "serial", "bound")
STEP_ALWAYS_THERE = ("best",)
