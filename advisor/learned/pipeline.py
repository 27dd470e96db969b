"""Closed-form times of all structures of a library in one situation, by arrays: which of them are worth an estimate.

Pieces follow each other as in a pipeline: a kernel begins when the one before it has ended and its data are there; if
kernels come first, copies begin when the ones before them have ended and their kernel has. The time of a kernel over a
share of the rows, or of the dimension that is cut, is read between the times of equal parts that the situation holds.
Streams, memory and unequal peers are left out: the trees learn what that does.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt

from .situation import CUTS, MANY_SMS, Situation
from .structure import KNOBS, Shapes

FloatArray = npt.NDArray[np.float64]

# Bytes sent for each byte of data: LL pairs every 4 with a flag of 4, LL128 every 120 with 8 (NCCL's protocols).
LL_BYTES, LL128_BYTES = 2.0, 128 / 120
# Streams beyond these change nothing.
MAX_STREAMS = 3
_LEAST_SHARE = 1e-3
_LOG_CUTS = np.log(np.array([1, *CUTS], np.float64))


def pipeline_times(situation: Situation, shapes: Shapes) -> FloatArray:
    """Return the logarithm of the time of each structure over that of the undivided kernel, [P]."""
    rates = _rates(situation, shapes)
    kernels = _kernels(situation, shapes) * rates.compute[:, None]
    ends = (_gathered if shapes.consumes else _scattered)(situation, rates, kernels, _copies(rates, shapes))
    return np.asarray(np.log(ends))


def _copies(rates: "_Rates", shapes: Shapes) -> FloatArray:
    """Return how long the copies of each piece hold the links, [P, M]; 0 without any.

    Copies that share engines wait for one that is free; those of other numbers of engines than of peers drift apart,
    so that links are busy while some engines set up.
    """
    share = shapes.remote * shapes.cut
    by_engines = share * rates.engines[:, None] + rates.between[:, None]
    return np.where(share > 0, np.maximum(share * rates.links[:, None], by_engines), 0.0)


def _gathered(situation: Situation, rates: "_Rates", kernels: FloatArray, copies: FloatArray) -> FloatArray:
    """Return when the last kernel ends, [P]; each begins when its data are there and its stream is free."""
    moves = copies > 0
    arrived = np.cumsum(np.where(moves, copies + rates.gap[:, None], 0.0), axis=1)
    ready = np.where(moves, arrived + (rates.lead - rates.gap - rates.between + rates.event)[:, None], 0.0)
    # Blocks that share tiles of a persistent kernel wait for each other.
    ready = np.where(rates.whole[:, None], ready.max(axis=1, keepdims=True), ready)
    for k in range(1, ready.shape[1]):
        ready[:, k] = np.maximum(ready[:, k], _streams_ago(rates, ready, k, 0.0))
    order = np.argsort(ready, axis=1, kind="stable")
    ready, kernels = (np.take_along_axis(each, order, axis=1) for each in (ready, kernels))
    computed = rates.once
    for begin, kernel in zip(ready.T, kernels.T, strict=True):
        computed = _run(rates, computed, begin, kernel)
    return computed


def _streams_ago(rates: "_Rates", values: FloatArray, k: int, without: float) -> FloatArray:
    """Return the value of the piece before piece ``k`` in its stream, [P]; ``without`` where there is none."""
    earlier = [values[:, k - streams] if k >= streams else without for streams in range(1, MAX_STREAMS + 1)]
    return np.select([rates.streams == streams for streams in range(1, MAX_STREAMS + 1)], earlier)


def _run(rates: "_Rates", computed: FloatArray, ready: FloatArray, kernel: FloatArray) -> FloatArray:
    """Return when a kernel ends that follows others; in several streams it starts while these still run."""
    start = np.minimum(rates.start, kernel)
    alone = np.maximum(np.maximum(computed, ready) + kernel, ready + rates.unit)
    beside = np.maximum(computed, ready + start) + kernel - start
    return np.where(kernel > 0, np.where(rates.streams > 1, beside, alone), computed)


def _scattered(situation: Situation, rates: "_Rates", kernels: FloatArray, copies: FloatArray) -> FloatArray:
    """Return when the last data has arrived and is summed, [P]; copies begin when their kernel has ended.

    A sum waits for the kernels that are launched when its data has arrived. What all ranks keep is then sent on.
    """
    moves = copies > 0
    sums = situation["sum_over_whole"] * copies / np.maximum(copies.sum(axis=1), 1e-12)[:, None]
    computed, copied, zeros = rates.once, np.zeros(len(kernels)), np.zeros(len(kernels))
    arrived, summed, ends = np.full(copies.shape, np.inf), np.zeros(copies.shape), np.zeros(copies.shape)
    for k, (kernel, copy) in enumerate(zip(kernels.T, copies.T, strict=True)):
        if k and situation["sums"]:
            launched = _streams_ago(rates, ends, k, -1.0)
            launched = np.where(rates.unit > 0, -1.0, launched)  # behind a persistent kernel
            begin = (arrived[:, :k] + rates.event[:, None] <= launched[:, None]) & (summed[:, :k] == 0)
            computed = computed + np.where(begin, sums[:, :k] + rates.start[:, None], 0.0).sum(axis=1)
            summed[:, :k] = np.where(begin, computed[:, None], summed[:, :k])
        computed = ends[:, k] = _run(rates, computed, zeros, kernel)
        made = np.where(rates.whole, kernels.sum(axis=1) + rates.once, computed)
        after = np.maximum(copied + rates.gap, made + rates.event) + copy
        copied = np.where(moves[:, k], after, copied)
        arrived[:, k] = np.where(moves[:, k], copied + rates.lead - rates.between, np.inf)
    if not situation["sums"]:
        return np.maximum(computed, copied + rates.lead - rates.between)
    return _summed(situation, rates, copies, (arrived, summed, sums), computed)


def _summed(
    situation: Situation,
    rates: "_Rates",
    copies: FloatArray,
    pieces: tuple[FloatArray, FloatArray, FloatArray],
    computed: FloatArray,
) -> FloatArray:
    """Return when all pieces are summed and, where all ranks keep them, sent on; ``pieces`` are [P, M].

    They have arrived, were summed while kernels ran, 0 if not, and take so long to sum.
    """
    arrived, summed, sums = pieces
    end, sent = computed, np.zeros(len(computed))
    for k, copy in enumerate(copies.T):
        moves = copy > 0
        later = np.maximum(end, arrived[:, k] + rates.event) + rates.start + sums[:, k]
        done = np.where(summed[:, k] > 0, summed[:, k], np.where(moves, later, 0.0))
        end = np.maximum(end, done)
        sent = np.where(moves, np.maximum(sent + rates.gap, done + rates.event) + copy, sent)
    if not situation["keeps_all"]:
        return end
    # A link that is never idle from the first copy on passes everything twice.
    first = (arrived - copies).min(axis=1) - rates.lead + rates.between
    busy = first + 2 * copies.sum(axis=1) + rates.gap * (2 * (copies > 0).sum(axis=1) - 1)
    return np.asarray(np.maximum(np.maximum(sent, busy) + rates.lead - rates.between, end))


@dataclass(frozen=True, slots=True)
class _Rates:
    """Times over that of the whole kernel, each [P].

    All copies take ``links`` by the links and ``engines`` by all engines; ``between`` is added for the setups of each
    piece where engines drift apart, else ``gap``. ``lead`` is from the begin of a copy until its first data is there.
    ``compute`` is that of the kernel beside the copies, ``start`` of what each launch costs, and ``once`` of one launch
    for all, whose parts take a ``unit`` each at the least, and are ready together if ``whole``.
    """

    links: FloatArray
    engines: FloatArray
    between: FloatArray
    gap: FloatArray
    lead: FloatArray
    compute: FloatArray
    event: FloatArray
    start: FloatArray
    once: FloatArray
    unit: FloatArray
    whole: npt.NDArray[np.bool_]
    streams: FloatArray


def _rates(situation: Situation, shapes: Shapes) -> _Rates:
    knob, ratio, peers = shapes.knob, situation.ratio, situation.num_ranks - 1
    whole, sms = ratio("log_comm_over_whole"), knob("copy_sms")
    by_sm, persistent = sms > 0, knob("persistent") > 0
    ways = [knob(name) > 0 for name in ("ring", "double_ring", "one_by_one")]
    in_turn, pieces = np.any(ways, axis=0), knob("pieces_of_shard")
    by_way = (ratio(f"log_{way}_over_comm") for way in ("passing", "both_ways", "one_by_one"))
    links = np.select(ways, [*by_way], ratio("log_links_over_comm"))
    most = max(1.0, round(situation["engines_per_peer"] * peers))
    engines = np.clip(np.round(knob("engines_per_peer") * peers), 1.0, most)
    at_once = np.minimum(engines, np.select(ways, [pieces, 2 * pieces, np.ones(len(sms))], engines))
    by_sms = ratio("log_sm_over_comm") / np.maximum(sms, 1.0)
    by_engines = np.where(by_sm, by_sms, ratio("log_engine_over_comm") / at_once)
    ll, ll128 = knob("ll") > 0, knob("ll128") > 0
    extra = np.where(ll, LL_BYTES, np.where(ll128, LL128_BYTES, 1.0)) * whole
    setup = np.where(by_sm, ratio("sm_setup_over_comm"), ratio("setup_over_comm"))
    # Flags come with the data of LL and LL128. Else one that is polled follows, once it is known that data has arrived.
    flags, latency = ll | ll128, ratio("latency_over_comm")
    lead = whole * np.where(flags, np.minimum(setup, latency), setup + 2 * latency * (by_sm & persistent))
    drifts = ~in_turn & (by_sm | (engines != peers))
    each = lead * shapes.crowd
    return _Rates(
        links=links * extra,
        engines=by_engines * extra,
        between=np.where(drifts, each * np.where(by_sm, 1.0, peers / engines), 0.0),
        gap=np.where(drifts, 0.0, each),
        lead=lead * np.where((knob("serial") > 0) & in_turn, knob("hops"), 1.0),
        compute=np.exp(np.where(by_sm, situation["whole_beside_sms"] * np.minimum(sms / MANY_SMS, 1.0), 0.0)),
        event=np.where(persistent, 0.0, ratio("event_over_whole") * shapes.crowd),
        start=np.where(persistent, 0.0, situation["start_share"] * shapes.crowd),
        once=np.where(persistent, situation["start_share"], 0.0),
        unit=np.where(persistent, 1 / math.ceil(ratio("waves")), 0.0),
        whole=persistent & (situation["shared_tiles"] > 0) & (knob("num_slices") + knob("num_bands") == 0),
        streams=np.where(persistent, 1.0, np.minimum(knob("streams"), MAX_STREAMS)),
    )


def _kernels(situation: Situation, shapes: Shapes) -> FloatArray:
    """Return the time of the kernel of each piece over that of the whole kernel, [P, M]; 0 without rows."""
    own, peers = situation.ratio("own_over_remote"), situation.num_ranks - 1
    rows = (shapes.own * own + shapes.remote * peers) / (own + peers)
    by_rows = np.array([0.0, *(situation[f"rows_by_{cuts}"] for cuts in CUTS)])
    by_cut = np.array([0.0, *(situation[f"cut_by_{cuts}"] for cuts in CUTS)])
    size, part = _logs(rows), _logs(shapes.cut)
    # One persistent kernel has the tiles of the whole one.
    lost = np.where(shapes.knob("persistent")[:, None] > 0, 0.0, _loss(size, by_rows) + _loss(part, by_cut))
    return np.where(rows > 0, np.exp(lost - size - part), 0.0)


def _logs(shares: FloatArray) -> FloatArray:
    return np.asarray(-np.log(np.maximum(shares, _LEAST_SHARE)))


def _loss(log_parts: FloatArray, known: npt.NDArray[np.float64]) -> FloatArray:
    """Return the loss of parts of a share, read between those of ``CUTS`` and continued beyond them."""
    slope = max(0.0, float((known[-1] - known[-2]) / (_LOG_CUTS[-1] - _LOG_CUTS[-2])))
    return np.asarray(np.interp(log_parts, _LOG_CUTS, known) + slope * np.maximum(log_parts - _LOG_CUTS[-1], 0.0))


# Features of a structure in a situation, for all structures of a library at once: what the trees are asked about.


# Numbers of the situation that are compared with those of the one that a structure won in.
COMPARED = (
    "log_comm_over_whole", "waves", "log_rows", "log_ranks", "log_whole_us", "event_over_whole", "setup_over_comm",
)  # fmt: skip
PIPELINE = "pipeline"


def names_of_features(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the columns of ``pair_features`` for situations with these ``names``."""
    compared = (f"{name}_beside_origin" for name in COMPARED)
    return (*names, *KNOBS, PIPELINE, "pipeline_over_best", "distance", *compared)


@dataclass(frozen=True, slots=True)
class FeatureScale:
    """Standard deviations of the numbers of situations, [F]."""

    deviation: FloatArray

    @classmethod
    def of(cls, values: FloatArray) -> "FeatureScale":
        """Return the scale of situations [N, F]; a number that never varies is no distance."""
        deviation = values.std(axis=0)
        return cls(np.where(deviation > 0, deviation, 1.0))

    def apart(self, values: FloatArray, origins: FloatArray) -> FloatArray:
        """Return by how many standard deviations ``values`` [F] are from ``origins`` [P, F], as [P, F]."""
        return np.asarray((values - origins) / self.deviation)


def pair_features(situation: Situation, shapes: Shapes, origins: FloatArray, scale: FeatureScale) -> FloatArray:
    """Return features of P structures in one situation, [P, G]; ``origins`` [P, F] are the situations they won in."""
    times = pipeline_times(situation, shapes)
    apart = scale.apart(situation.values, origins)
    compared = [situation.names.index(name) for name in COMPARED]
    columns = (
        np.broadcast_to(situation.values, origins.shape),
        shapes.knobs,
        times[:, None],
        (times - times.min())[:, None],
        np.sqrt(np.square(apart).mean(axis=1))[:, None],
        apart[:, compared],
    )
    return np.hstack(columns)


# Share of errors that an interval covers.
COVERED = 0.9

Interval = tuple[float, float]
"""Lower and upper logarithm of a simulated over an estimated figure."""


@dataclass(frozen=True, slots=True)
class Found:
    """Times that a search found; infinite without a search.

    ``estimate_ticks`` is the least estimate, ``picked_ticks`` the simulated time of the plan that has it. Simulated are
    ``best_ticks``, of the fastest plan, and ``serial_ticks``, of the baseline, whose estimate is
    ``serial_estimate_ticks``.
    """

    estimate_ticks: float = math.inf
    picked_ticks: float = math.inf
    best_ticks: float = math.inf
    serial_ticks: float = math.inf
    serial_estimate_ticks: float = math.inf


@dataclass(frozen=True, slots=True)
class EstimateErrors:
    """Intervals of the ``time`` of the schedule with the least estimate, and of its ``gain`` over the baseline.

    It is chosen by estimates, as a proposal is; the baseline is estimated too.
    """

    time: Interval = (0.0, 0.0)
    gain: Interval = (0.0, 0.0)

    @classmethod
    def of(cls, found: Iterable[Found]) -> "EstimateErrors":
        """Return the intervals of what searches ``found``; those of nothing are (0, 0)."""
        searched = [each for each in found if max(astuple(each)) < math.inf]
        times = [math.log(each.picked_ticks / each.estimate_ticks) for each in searched]
        serial = [math.log(each.serial_ticks / each.serial_estimate_ticks) for each in searched]
        gains = [own - time for own, time in zip(serial, times, strict=True)]
        return cls(_conformal(times), _conformal(gains))


NO_ERRORS = EstimateErrors()


def _conformal(errors: Sequence[float]) -> Interval:
    if not errors:
        return (0.0, 0.0)
    ordered = sorted(errors)
    outside = math.floor((1 - COVERED) / 2 * (len(ordered) + 1) + 1e-9)
    low, high = max(0, outside - 1), min(len(ordered) - 1, len(ordered) - outside)
    return ordered[low], ordered[high]
