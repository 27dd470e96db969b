"""Policy tables written by hand, and golden files of what targets write."""

import dataclasses
import os
import re
from dataclasses import replace

from magus import __version__
from magus.advisor.policy.table import OpRule, PolicyRule, PolicyTable
from tests.helpers import paths

GOLDEN, UPDATE = paths.GOLDEN / "targets", "MAGUS_UPDATE_GOLDEN"

_RULE = PolicyRule(
    pattern="all_reduce",
    gpu="H100",
    ranks=8,
    topology="switch",
    dtype="bf16",
    n=None,
    k=None,
    axis="num_bytes",
    least=65536,
    most=1048575,
    multiple_of=65536,
    verdict="serial",
    schedule="ring(chunks=8, engine=sm(4), protocol=ll)",
    ops=(OpRule("w", "w", "ring(chunks=8, engine=sm(4), protocol=ll)", "ring", "ring", "ll", 8, 0, 4),),
    gain=(1.1, 1.25),
    loss=0.0,
    sizes=(65536, 524288),
)


def rule_of(schedule: str = _RULE.schedule, **fields: object) -> PolicyRule:
    """A rule of a lone all_reduce of 64 KiB to 1 MiB on 8 H100, with other ``fields``."""
    template = schedule.partition("(")[0]
    names = {each.name for each in dataclasses.fields(OpRule)}
    of_op = {name: value for name, value in fields.items() if name in names}
    others = {name: value for name, value in fields.items() if name not in names}
    said = {"schedule": schedule, "template": template, "algorithm": template, **of_op}
    op = replace(_RULE.op, **said)  # type: ignore[arg-type]
    return replace(_RULE, schedule=schedule, ops=(op,), **others)  # type: ignore[arg-type]


def gemm_rule(schedule: str, least: int, most: int, **fields: object) -> PolicyRule:
    """A rule of AG+GEMM of M x 3584 x 8192 on 8 H100, of M from ``least`` to ``most``."""
    usual: dict[str, object] = {
        "pattern": "AG+GEMM",
        "n": 3584,
        "k": 8192,
        "axis": "m",
        "least": least,
        "most": most,
        "multiple_of": 8,
        "verdict": "serial" if schedule.startswith("serial") else "overlap",
        "algorithm": "",
        "protocol": "simple",
        "copy_sms": 0,
    }
    return rule_of(schedule, **{**usual, **fields})


def table_of(*rules: PolicyRule, marks: tuple[str, ...] = ("assumed, not measured: H100.dma.setup",)) -> PolicyTable:
    """A table of simulated rules, of medium confidence."""
    return PolicyTable(rules, simulated=True, confidence="medium", marks=marks)


def assert_golden(text: str, name: str) -> None:
    """Compare with ``tests/golden/targets/NAME``; with MAGUS_UPDATE_GOLDEN=1 write it instead."""
    text = re.sub(r"sha256:\w{64}", "sha256:HASH", text.replace(f"Magus {__version__}", "Magus VERSION"))
    if os.environ.get(UPDATE):
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()
