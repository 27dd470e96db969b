"""Tuner files of NCCL, RCCL and NCCLX: what their readers make of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.advisor.policy.table import PolicyTable
from magus.advisor.targets import Refused, Target
from magus.advisor.targets.nccl import ANY_SIZE, COLLECTIVES, NCCL, NCCLX, RCCL
from tests.helpers.policy_rules import assert_golden, gemm_rule, rule_of, table_of

LONE = table_of(
    rule_of(),
    rule_of("double_tree(chunks=32, engine=sm(8))", least=1048576, most=33554431, protocol="simple", copy_sms=8),
    rule_of("nvls(chunks=32, engine=sm(16))", least=33554432, most=67108864, protocol="simple", copy_sms=16),
    rule_of("serial(engine=sm(16, library))", least=67108865, most=268435456, copy_sms=0),
    rule_of("serial(engine=dma(7))", least=1048576, most=33554431, copy_engines=7, copy_sms=0),  # never reached
)
BESIDE = table_of(
    gemm_rule("serial(engine=dma(7))", 512, 2047, copy_engines=7),
    gemm_rule("uniform_fused_1d(chunks=16, engine=sm(8))", 2048, 8191, chunks=16, copy_sms=8),
    gemm_rule(
        "pipelined(chunks=32, engine=sm(16), algorithm=ring)", 16384, 32768, chunks=32, copy_sms=16, algorithm="ring"
    ),
    gemm_rule("serial(engine=dma(7))", 2048, 32768, copy_engines=7),  # never reached
)


def plugin_picks(text: str, collective: str, num_bytes: int, ranks: int = 8) -> tuple[str, str, int]:
    """What NCCL's example plugin picks: the first line that matches, of at most 255 characters; else one channel."""
    for line in text.splitlines():
        assert len(line) < 256
        if line.startswith("#"):
            continue
        name, least, most, algorithm, protocol, channels, nodes, of_ranks = line.split(",")
        assert name in COLLECTIVES, "any other name is read as allreduce"
        if (
            name == collective
            and int(least) <= num_bytes <= int(most)
            and int(nodes) in (-1, 1)
            and int(of_ranks) in (-1, ranks)
        ):
            return algorithm, protocol, int(channels)
    return "", "", 1


@pytest.mark.parametrize(("target", "name"), [(NCCL, "nccl"), (NCCLX, "ncclx")])
def test_a_lone_collective_has_algorithm_protocol_and_channels_by_size(target: Target[PolicyTable], name: str) -> None:
    assert_golden(target.text(LONE, {}), f"{name}_all_reduce.csv")


def test_a_gemm_beside_has_the_channels_that_its_schedule_leaves_to_copies() -> None:
    text = NCCL.text(BESIDE, {"channels": "24"})

    assert_golden(text, "nccl_ag_gemm.csv")
    per_row = 8192 * 2
    assert plugin_picks(text, "allgather", 2048 * per_row // 2) == ("ring", "simple", 8)
    assert plugin_picks(text, "allgather", 32768 * per_row // 4) == ("ring", "simple", 16)
    assert plugin_picks(text, "allgather", 32768 * per_row) == ("ring", "simple", 24), "no call of these plans"


def test_rccl_gets_the_same_lines_and_keeps_its_own_choice_elsewhere() -> None:
    text = RCCL.text(BESIDE, {})

    assert_golden(text, "rccl_ag_gemm.csv")
    assert plugin_picks(text, "allreduce", 1024)[0] == ""


@given(st.sampled_from(COLLECTIVES), st.integers(1, ANY_SIZE), st.integers(2, 64))
def test_the_plugin_of_nccl_never_falls_back_to_one_channel(collective: str, num_bytes: int, ranks: int) -> None:
    algorithm, _, channels = plugin_picks(NCCL.text(LONE, {}), collective, num_bytes, ranks)

    assert algorithm
    assert channels >= 4


@given(st.integers(65536, 268435456))
def test_the_plugin_picks_what_the_table_says(num_bytes: int) -> None:
    rule = next(rule for rule in LONE.rules if rule.least <= num_bytes <= rule.most)
    name = {"double_tree": "tree", "ring": "ring", "nvls": "nvls"}.get(rule.op.template)

    picked = plugin_picks(NCCL.text(LONE, {}), "allreduce", num_bytes)

    assert picked == ((name, rule.op.protocol, rule.op.copy_sms) if name else ("ring", "simple", 16))


def test_the_file_says_from_which_rules_it_is() -> None:
    assert str(LONE.document()["hash"]) in NCCL.text(LONE, {})


def test_other_numbers_of_ranks_keep_to_the_lines_for_all_calls() -> None:
    assert plugin_picks(NCCL.text(LONE, {}), "allreduce", 1 << 20, ranks=16) == ("ring", "ll128", 16)


def test_ncclx_counts_the_bytes_of_a_rank_and_the_ranks_of_a_node() -> None:
    text = NCCLX.text(table_of(rule_of(ranks=16, nodes=2)), {})

    assert text.splitlines()[-1] == "allreduce,[4096,65535],ring,ll,4,2,8"


@pytest.mark.parametrize(
    ("target", "table", "reason"),
    [
        (NCCL, table_of(rule_of(pattern="all_to_all")), "does not call its tuner for all_to_all"),
        (NCCL, table_of(rule_of("one_shot(engine=sm(4))")), "no name for 'one_shot'"),
        (NCCL, table_of(rule_of("serial(engine=sm(4))")), "no name for the direct exchange"),
        (NCCL, table_of(rule_of("double_tree(engine=sm(4))", pattern="broadcast")), "no name for 'double_tree'"),
        (NCCL, table_of(rule_of("serial(engine=dma(7))", copy_engines=7, copy_sms=0)), "copy engines"),
        (NCCL, table_of(rule_of("nvls(engine=sm(4), protocol=ll)")), "NVLS has the protocol simple alone"),
        (NCCL, table_of(rule_of("serial(engine=sm(16, library))", copy_sms=0)), "there is nothing to write"),
        (NCCL, table_of(gemm_rule("shard_p2p(engine=sm(4))", 512, 1024, copy_sms=4)), "sends to single peers"),
        (RCCL, LONE, "RCCL has no name for 'nvls'"),
        (
            NCCL,
            table_of(
                gemm_rule("uniform_fused_1d(chunks=8, engine=sm(4))", 512, 1023, chunks=8, copy_sms=4),
                gemm_rule("uniform_fused_1d(chunks=16, engine=sm(8))", 1024, 2048, chunks=16, copy_sms=8),
            ),
            "calls of one size need two settings",
        ),
    ],
)
def test_what_a_tuner_cannot_say_is_refused_with_a_hint(
    target: Target[PolicyTable], table: PolicyTable, reason: str
) -> None:
    with pytest.raises(Refused, match=reason) as error:
        target.text(table, {})

    assert error.value.rejection.code.name == "MGS550"
    assert error.value.rejection.hint


@pytest.mark.parametrize(
    ("options", "code"), [({"chanels": "4"}, "MGS203"), ({"channels": "-1"}, "MGS311"), ({"channels": ""}, "MGS209")]
)
def test_options_are_checked(options: dict[str, str], code: str) -> None:
    with pytest.raises(Refused) as error:
        NCCL.text(LONE, options)

    assert error.value.rejection.code.name == code
    assert error.value.rejection.hint
