"""Settings of one layer for the overlap of Transformer Engine, as YAML: ``--tp-comm-overlap-cfg`` of Megatron.

``ring_exchange`` moves shards round the ranks, each behind the GEMM of another: ``shard_p2p``. ``pipeline`` cuts the
rows of GEMM+RS: ``uniform_fused_1d``. Keys that a rule does not decide keep the defaults of Transformer Engine, which
ends with an error at a key that it does not know, and passes over a layer that it does not know.
"""

from ...compiler.ir import Pattern
from ..policy.table import PolicyRule, PolicyTable
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
    sizes_text,
)
from .te_table import te_table_text

# Bulk overlap (of gradients of weights) is of a GEMM and a collective that need nothing of each other.
LAYERS = {
    Pattern.AG_GEMM: ("qkv_fprop", "fc1_fprop", "proj_dgrad", "fc2_dgrad"),
    Pattern.GEMM_RS: ("proj_fprop", "fc2_fprop", "qkv_dgrad", "fc1_dgrad"),
}
_OFF = {Pattern.AG_GEMM: "--disable-tp-comm-overlap-ag", Pattern.GEMM_RS: "--disable-tp-comm-overlap-rs"}
Settings = dict[str, str | int | bool]


def _write(table: PolicyTable, options: Options) -> str:
    if table.is_several:
        return te_table_text(table, options)
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
    lines = "".join(f"  {key}: {_yaml(value)}\n" for key, value in settings[0].items())
    why = [f"{sizes_text(rule)}: {rule.schedule}, {gain_text(rule)}" for rule in rules]
    return f"{heading(table, 'megatron')}{comments(*why)}{layer}:\n{lines}"


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


MEGATRON = Target(
    "megatron",
    "settings of a layer for --tp-comm-overlap-cfg of Megatron",
    _write,
    (
        Option(
            "layer",
            "such as fc1_fprop or fc2_fprop",
            tuple(name for names in LAYERS.values() for name in names),
            of_one=True,
        ),
        Option("te", "major version of Transformer Engine, 1 or 2", ("1", "2"), "2"),
    ),
)
