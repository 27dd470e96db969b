"""Settings of layers for the overlap of Transformer Engine: YAML for Megatron, Python for programs without it.

``ring_exchange`` moves shards round the ranks, each behind the GEMM of another: ``shard_p2p``. ``pipeline`` cuts the
rows of GEMM+RS: ``uniform_fused_1d``. Keys that a rule does not decide keep the defaults of Transformer Engine, which
ends with an error at a key that it does not know, and passes over a layer that it does not know.

Of several ops it is the best table that its methods and flags allow (``layers/transformer_engine.py``), not a part of
the recommended schedule.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from ...compiler.ir import Pattern
from ..candidates.advice import Advice
from ..implementations.offers import Offer, OpSetting, Order
from ..layers.transformer_engine import AG_OFF, BULK_DGRAD_OFF, BULK_WGRAD_OFF, NAME, ON, RING, RS_DGRAD, RS_OFF
from ..policy.table import PolicyRule, PolicyTable, SweepPoint, table_of
from .base import (
    Option,
    Options,
    Refused,
    Target,
    comments,
    gain_text,
    heading,
    main_rules,
    refused,
    settings_text,
    sizes_text,
)
from .settings import nearest_of

# Bulk overlap (of gradients of weights) is of a GEMM and a collective that need nothing of each other.
LAYERS = {
    Pattern.AG_GEMM: ("qkv_fprop", "fc1_fprop", "proj_dgrad", "fc2_dgrad"),
    Pattern.GEMM_RS: ("proj_fprop", "fc2_fprop", "qkv_dgrad", "fc1_dgrad"),
}
_OFF = {Pattern.AG_GEMM: AG_OFF, Pattern.GEMM_RS: RS_OFF}
Settings = dict[str, str | int | bool]
_ENVIRONMENT = "environment: CUDA_DEVICE_MAX_CONNECTIONS=1, where GPUs are older than Blackwell"


@dataclass(frozen=True, slots=True)
class TeOverlap:
    """The settings of each layer, the flags of Megatron beside them, and why, in sentences."""

    layers: dict[str, Settings]
    flags: tuple[str, ...]
    why: tuple[str, ...]


def te_overlap(table: PolicyTable, options: Options) -> TeOverlap:
    """Return what Transformer Engine should do at all points of a table; ``options`` are those of ``MEGATRON``.

    Raises
    ------
    Refused
        If points want different settings, or none pays, or it cannot do what a rule says.
    """
    if table.is_several:
        return _several(table, options)
    rules, layer = main_rules(table), options["layer"]
    pattern = Pattern(rules[0].pattern)
    if layer not in LAYERS.get(pattern, ()):
        fits = ", ".join(LAYERS.get(pattern, ()))
        hint = f"layers with {pattern.value} are {fits}" if fits else "layers have AG+GEMM or GEMM+RS"
        raise refused(f"{layer} is no {pattern.value}", hint)
    if rules[0].nodes > 1:
        raise refused("Transformer Engine overlaps within one node", "ask for tensor parallelism in one node")
    settings = [_settings(rule, pattern, options["te"]) for rule in rules]
    if any(each != settings[0] for each in settings):
        said = ", ".join(sizes_text(rule) for rule in rules)
        raise refused(f"a layer has one setting, and the table several: {said}", "sweep the rows of this run alone")
    why = (f"{sizes_text(rule)}: {rule.schedule}, {gain_text(rule)}" for rule in rules)
    flags = (ON, RS_DGRAD) if pattern is Pattern.GEMM_RS and layer.endswith("_dgrad") else (ON,)
    return TeOverlap({layer: settings[0]}, flags, tuple(why))


def _write(table: PolicyTable, options: Options) -> str:
    found = te_overlap(table, options)
    return heading(table, "megatron") + megatron_text(found, of_one=not table.is_several)


def passes_text(framework: str, advice: Iterable[Advice]) -> str:
    """Return the file of what pays in all passes of a layer, for Megatron or programs without it.

    Raises
    ------
    Refused
        If the passes want what one setting cannot say.
    """
    points = ((each, SweepPoint((), each, each.recommended.joint, {})) for each in advice)
    tables = (table_of((), [each], (point,), simulated=True) for each, point in points)
    passes = [te_overlap(table, {"te": "2"}) for table in tables]
    if len({AG_OFF in each.flags for each in passes}) > 1:
        message = "one pass of the layer pays with its gathers overlapped, the other without: one flag is for both"
        raise refused(message, "magus export --workload NAME writes the file of one pass")
    layers = {name: settings for each in passes for name, settings in each.layers.items()}
    flags, why = (dict.fromkeys(chain(*of)) for of in ((one.flags for one in passes), (one.why for one in passes)))
    found = TeOverlap(layers, tuple(flags), tuple(why))
    return megatron_text(found) if framework == MEGATRON.name else python_text(found)


def megatron_text(found: TeOverlap, *, of_one: bool = False) -> str:
    """Return the file of Megatron without its heading; that ``of_one`` layer is put behind others."""
    beside = (f"flags: {' '.join(found.flags)} --tp-comm-overlap-cfg FILE", _ENVIRONMENT)
    blocks = (
        f"{layer}:\n" + "".join(f"  {key}: {_yaml(value)}\n" for key, value in settings.items())
        for layer, settings in found.layers.items()
    )
    return comments(*found.why, *(() if of_one else beside)) + "".join(blocks)


ARGUMENTS = {
    ON: ("ub_tp_comm_overlap", True),
    AG_OFF: ("ub_overlap_ag", False),
    RS_OFF: ("ub_overlap_rs", False),
    RS_DGRAD: ("ub_overlap_rs_dgrad", True),
    BULK_DGRAD_OFF: ("ub_bulk_dgrad", False),
    BULK_WGRAD_OFF: ("ub_bulk_wgrad", False),
}
"""Arguments of ``TransformerLayer`` that Megatron sets by its flags (transformer_engine/pytorch/transformer.py)."""

_USE = (
    _ENVIRONMENT,
    "initialize_ub([tokens, hidden size], tp_size, quantization_modes=[UserBufferQuantizationMode.NONE],",
    "  ub_cfgs=UB_CFGS), then TransformerLayer(..., set_parallel_mode=True, sequence_parallel=True, **LAYER)",
)


def _write_python(table: PolicyTable, options: Options) -> str:
    return heading(table, "transformer-engine") + python_text(te_overlap(table, {**options, "te": "2"}))


def python_text(found: TeOverlap) -> str:
    """Return the file of Python without its heading: ``UB_CFGS`` of all layers, ``LAYER`` of each."""
    blocks = "".join(f'    "{layer}": {_python(settings)},\n' for layer, settings in found.layers.items())
    layer = _python(dict(ARGUMENTS[flag] for flag in found.flags))
    return comments(*found.why, *_USE) + f"UB_CFGS = {{\n{blocks}}}\nLAYER = {layer}\n"


def _python(settings: Settings) -> str:
    """As Python with double quotes."""
    words = (f'"{value}"' if isinstance(value, str) else str(value) for value in settings.values())
    return "{" + ", ".join(f'"{key}": {word}' for key, word in zip(settings, words, strict=True)) + "}"


def _settings(rule: PolicyRule, pattern: Pattern, version: str) -> Settings:
    where = f"{sizes_text(rule)}: {rule.schedule}"
    if rule.op.template == "serial":
        raise refused(f"{where}: no overlap pays, and a layer without a setting has the default", _OFF[pattern])
    if rule.op.template == "shard_p2p":
        return {"method": "ring_exchange", **_ring_mover(rule, where, version)}
    if rule.op.template == "uniform_fused_1d" and pattern is Pattern.GEMM_RS:
        if not rule.op.copy_sms:
            raise _other_schedule(f"{where}: 'pipeline' moves data by SMs", pattern)
        return {"method": "pipeline", "num_sm": rule.op.copy_sms, "num_splits": rule.op.chunks // rule.ranks}
    raise _other_schedule(f"{where} is no method of Transformer Engine", pattern)


def _ring_mover(rule: PolicyRule, where: str, version: str) -> Settings:
    """What moves the shards. Version 1 copies by SMs alone."""
    if version == "1":
        if not rule.op.copy_sms:
            raise refused(f"{where}: Transformer Engine 1 moves data by SMs", "explore W { engine sm(1), sm(2) }")
        return {"num_sm": rule.op.copy_sms}
    return {"use_ce": False, "num_sm": rule.op.copy_sms} if rule.op.copy_sms else {"use_ce": True}


def _other_schedule(message: str, pattern: Pattern) -> Refused:
    templates = "shard_p2p" if pattern is Pattern.AG_GEMM else "shard_p2p, uniform_fused_1d"
    return refused(message, f"search its methods: explore W {{ schedules {templates}; engine dma, sm(1), sm(16) }}")


def _yaml(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


OFF = "leave out --tp-comm-overlap"


def _several(table: PolicyTable, options: Options) -> TeOverlap:
    """That of a table of several ops.

    Raises
    ------
    Refused
        If points want different tables, or none pays.
    """
    offers = [(point, *_offer(point)) for point in table.points]
    first = offers[0][2]
    for point, _, order in offers:
        if order.table.settings != first.table.settings or order.table.flags != first.table.flags:
            both = f"{settings_text(point)} wants another than {settings_text(offers[0][0])}"
            raise refused(f"a layer has one table, and {both}", "sweep the rows of this run alone")
    if options["te"] == "1" and any(setting.method == RING for setting in first.table.settings):
        raise refused(
            "ring_exchange is simulated by copy engines, which Transformer Engine 1 does not use", "--with te=2"
        )
    why = (*(_why(point, offer) for point, offer, _ in offers), f"not known, and left out: {first.unknown}")
    return TeOverlap({setting.layer: _block(setting) for setting in first.table.settings}, first.table.flags, why)


def _why(point: SweepPoint, offer: Offer) -> str:
    gain, offers = offer.promise.speedup, point.advice.offers
    library = "" if offers is None else f" over {offers.library}"
    return f"{settings_text(point)}: {gain:.2f}x{library}; the recommended schedule {point.advice.speedup:.2f}x"


def _offer(point: SweepPoint) -> tuple[Offer, Order]:
    """The table for one point.

    Raises
    ------
    Refused
        If there is none, or nothing pays.
    """
    advice, offer = point.advice, point.advice.offer(NAME)
    where = settings_text(point)
    if offer is None or offer.order is None:
        message = f"{where}: no table of Transformer Engine is known for {advice.scenario.name}"
        nearest = nearest_of("megatron", point)
        raise refused(message, nearest or "it overlaps AG+GEMM and GEMM+RS on one node of H100, H200 or B200")
    if not offer.promise.pays or not offer.order.table.settings:
        raise refused(f"{where}: no overlap of Transformer Engine pays", OFF)
    return offer, offer.order


def _block(setting: OpSetting) -> Settings:
    found: Settings = {"method": setting.method}
    numbers = {"use_ce": setting.copy_engine, "num_sm": setting.num_sm, "num_splits": setting.num_splits}
    return found | {key: value for key, value in numbers.items() if value}


_LAYER = Option(
    "layer", "such as fc1_fprop or fc2_fprop", tuple(name for names in LAYERS.values() for name in names), of_one=True
)
MEGATRON = Target(
    "megatron",
    "settings of a layer: --tp-comm-overlap-cfg of Megatron",
    _write,
    (_LAYER, Option("te", "major version of Transformer Engine, 1 or 2", ("1", "2"), "2")),
)
TRANSFORMER_ENGINE = Target(
    "transformer-engine",
    "ub_cfgs of initialize_ub and arguments of TransformerLayer, as Python",
    _write_python,
    (_LAYER,),
)
