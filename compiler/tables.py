"""The words of the language: which properties, operations, templates and clauses exist, and in what range.

A new property of a GPU is one row here and one line where its dataclass is filled: ``resolve_device.py``, and
``optional_parts.py`` for what a profile may leave out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from .expectation import Dimension as Expected
from .expectation import Metric
from .units import BYTES, FLOP_RATE, FREQUENCY, NUMBER, RATE, TIME, Dimension

CHUNKS_PER_RANK = 8

MAX_RANKS = 1024
MAX_DOMAIN_VALUES = 4096
MAX_EXTENT = 1 << 31
MAX_STREAMS = 64
MAX_TILES = 64


@dataclass(frozen=True, slots=True)
class Property:
    """A number that a block holds; both ends of the range are legal.

    Of those that are not required all of a block belong together, but for those that stand ``alone``.
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


def _rate(name: str, required: bool = True) -> Property:
    return Property(name, RATE, Fraction(10**6), Fraction(10**15), required=required)


def _time(name: str, required: bool = True) -> Property:
    return Property(name, TIME, Fraction(0), Fraction(1, 100), required=required)


def _share(name: str, low: Fraction = Fraction(0), high: int = 1) -> Property:
    return Property(name, NUMBER, low, Fraction(high))


def _exponent(required: bool = True) -> Property:
    return Property("exponent", NUMBER, Fraction(1), Fraction(64), required=required)


_PERCENT = Fraction(1, 100)
PEAK = Property("peak", FLOP_RATE, Fraction(10**9), Fraction(10**18))
GPU_NUMBERS = (
    _count("sms", 4096),
    Property("clock", FREQUENCY, Fraction(10**6), Fraction(10**11), whole=True),
    Property("line", BYTES, Fraction(32), Fraction(4096), whole=True),
)
CACHE_NUMBERS = (_size("size"), _rate("bandwidth"), _time("latency"))
GPU_BLOCKS: Mapping[str, tuple[Property, ...]] = {
    "hbm": (_size("capacity"), _rate("bandwidth"), _rate("achieved"), _time("latency")),
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
        _share("error", high=10),
        _share("resolution"),
    ),
    "dma": (
        _count("engines", 1024),
        _time("setup"),
        _rate("bandwidth"),
        Property("outstanding", BYTES, Fraction(1), Fraction(1 << 40), whole=True, required=False, alone=True),
        *(_time(f"{phase}_phase", required=False) for phase in ("control", "schedule", "copy", "sync")),
    ),
    "sm_copy": (_rate("bandwidth"), _time("setup"), _rate("limit", required=False), _exponent(required=False)),
    "launch": (_time("kernel"), _time("event")),
}
_PROTOCOLS = (
    *(_time("start"), _time("ll_step"), _rate("ll_bandwidth")),
    *(_time("ll128_start"), _rate("ll128_bandwidth")),
    *(_time("simple_start"), _time("simple_step"), _rate("simple_bandwidth"), _size("simple_from")),
    _rate("own_bandwidth"),
)
# Blocks inside `collectives`, and under the empty name what it says itself.
COLLECTIVES: Mapping[str, tuple[Property, ...]] = {
    "": (*_PROTOCOLS, _time("ll128_step"), _share("reduce_factor", _PERCENT, high=2), _share("error", high=10)),
    "nvls": (_time("start"), _rate("bandwidth"), _size("from"), _count("ranks", MAX_RANKS)),
    "all_to_all": _PROTOCOLS,
}
GPU_WORDS = ("source", "sms", "clock", "line", "peak", "cache", *GPU_BLOCKS, "collectives")
LINK_NUMBERS = (_rate("bandwidth"), _rate("achieved"), _time("latency"))
SWITCH_NUMBERS = (_count("ports", MAX_RANKS), _rate("bandwidth"), _time("latency"))

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
}

SYSTEM_WORDS = ("gpus", "fabric")
WORKLOAD_WORDS = ("about",)
OPERATIONS = ("gemm", "all_gather", "reduce_scatter")
TENSOR_WORDS = ("shard",)
EXPLORE_WORDS = ("schedules", "chunks", "engine", "staging", "minimize")
OBJECTIVES = ("makespan",)
TEMPLATE_ARGUMENTS = ("chunks", "engine", "streams")
PLAN_ACTIONS = ("put", "get", "compute", "reduce")
PLAN_CLAUSES: Mapping[str, tuple[str, ...]] = {
    "put": ("to", "signal", "after", "lane", "reduce"),
    "get": ("from", "signal", "after", "lane"),
    "compute": ("k", "after", "stream", "accumulate"),
    "reduce": ("parts", "after", "stream"),
}

METRICS: Mapping[Metric, Expected] = {
    Metric.MAKESPAN: Expected.TIME,
    Metric.COMPUTE_TIME: Expected.TIME,
    Metric.COMM_TIME: Expected.TIME,
    Metric.EXPOSED_TIME: Expected.TIME,
    Metric.EXPOSED: Expected.RATIO,
    Metric.OVERLAP_EFFICIENCY: Expected.RATIO,
    Metric.DIL: Expected.RATIO,
    Metric.CIL: Expected.RATIO,
    Metric.STAGING: Expected.BYTES,
}
ALWAYS_THERE = ("best", "serial", "bound")
