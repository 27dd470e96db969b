"""From how many tokens on vLLM shards activations and fuses GEMMs with their collectives: a file for ``--config``.

``sp_min_token_num`` is M where overlap begins to pay beyond the error of predictions. vLLM has one threshold for all
layers: the larger of those of its GEMMs. Its own table knows H100 alone; without a threshold it fuses nothing.
"""

import json

from ...compiler.ir import Pattern
from ..policy.table import PolicyTable
from .base import Options, Target, comments, gain_text, heading, main_rules, refused, sizes_text

PATTERNS = (Pattern.AG_GEMM.value, Pattern.GEMM_RS.value)


def _write(table: PolicyTable, options: Options) -> str:
    rules = main_rules(table)
    if rules[0].pattern not in PATTERNS:
        raise refused(f"vLLM has no pass for {rules[0].pattern}", f"it has one for {' and '.join(PATTERNS)}")
    pays = [rule.verdict == "overlap" for rule in rules]
    first = pays.index(True) if True in pays else len(rules)
    if not all(pays[first:]):
        end = next(rule for rule, pay in zip(rules[first:], pays[first:], strict=True) if not pay)
        message = f"overlap pays from M {rules[first].least} on, and no longer at {sizes_text(end)}"
        raise refused(message, "vLLM has one threshold: sweep the rows above")
    config: dict[str, bool | int] = {"enable_sp": first < len(rules), "fuse_gemm_comms": first < len(rules)}
    if first < len(rules):
        config["sp_min_token_num"] = rules[first].least
    why = [f"{sizes_text(rule)}: {rule.schedule}, {gain_text(rule)}" for rule in rules]
    if any(rule.op.template != "shard_p2p" for rule in rules[first:]):
        why.append("vLLM cuts by rank, as shard_p2p: its gain may be smaller")
    text = json.dumps({"pass_config": config})
    return f"{heading(table, 'vllm')}{comments(*why)}compilation-config: '{text}'\n"


VLLM = Target("vllm", "the passes of vLLM, for vllm serve --config", _write)
