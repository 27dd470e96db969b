"""Times of a compiled module for XLA, from its text."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from magus.advisor import Oracle
from magus.advisor.oracle.oracle import Array, HloError, arrays_of, product_sizes, read_hlo
from magus.advisor.targets import Refused
from magus.advisor.targets.pgle import PGLE
from magus.compiler import compile_text
from magus.compiler.ir import OpCase
from tests.helpers.commands import magus
from tests.helpers.policy_rules import GOLDEN, assert_golden

MODULE = GOLDEN / "module.hlo"
MIB = 1 << 20


def scenarios(ranks: int = 4) -> Sequence[OpCase]:
    text = (
        f'use "nvidia/h100"\nsystem hgx {{ gpus {ranks} x H100; fabric switch(nvswitch, link=nvlink) }}\n'
        "workload w on hgx { x = tensor bf16[4096, 4096] shard rows; y = all_gather(x) }\n"
    )
    return [compile_text(text).scenario().case]


def costs(text: str) -> dict[str, float]:
    """Read the text form of the profile."""
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        parts = re.fullmatch(r'costs \{ name: "([\w.\-]+)" cost_us: ([\d.]+) \}', line)
        assert parts is not None
        found[parts[1]] = float(parts[2])
    return found


def test_every_instruction_that_takes_time_has_its_time() -> None:
    oracle, text = Oracle(gpu="H100", ranks=4), PGLE.text(scenarios(), {"hlo": str(MODULE)})

    assert_golden(text, "module.pbtxt")
    found = costs(text)
    assert found["all-gather-start"] == pytest.approx(oracle.collective_us("all_gather", 32 * MIB), abs=1e-3)
    assert found["scatter-start"] == pytest.approx(oracle.collective_us("reduce_scatter", 8 * MIB), abs=1e-3)
    assert found["all-reduce-start"] == pytest.approx(oracle.collective_us("all_reduce", 32 * MIB), abs=1e-3)
    assert found["custom-call.3"] == pytest.approx(oracle.kernel_us(4096, 4096, 4096), abs=1e-3)
    assert found["gemm_fusion.1"] == pytest.approx(oracle.kernel_us(4096, 1024, 4096), abs=1e-3)
    assert 10 < found["wrapped_slice"] < 40, "bytes over the rate of memory, and a launch"
    assert not any("done" in name or name in ("x", "y", "sum", "dot.1") for name in found)


def test_what_nothing_was_fitted_to_is_named() -> None:
    text = PGLE.text(scenarios(), {"hlo": str(MODULE)})

    assert "XLA must not be strict: attention" in text.replace("\n# ", " ")
    assert "attention" not in costs(text)


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("HloModule jit_f\n\nFileNames\n1 {\n", "no instruction of a compiled module"),
        (
            "ENTRY %main (x: f32[4]) -> f32[4] {\n  ROOT %x = f32[4]{0} parameter(0)\n}\n",
            "no time is known of any instruction",
        ),
    ],
)
def test_a_file_that_says_nothing_is_refused(module: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text(module)

    with pytest.raises(Refused, match=why):
        PGLE.text(scenarios(), {"hlo": str(file)})


def test_a_file_that_is_missing_is_an_error_of_the_command(tmp_path: Path) -> None:
    file = tmp_path / "machine.mgs"
    file.write_text(
        'use "nvidia/h100"\nsystem hgx { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }\n'
        "workload w on hgx { x = tensor bf16[4096, 4096] shard rows; y = all_gather(x) }\n"
    )

    done = magus("export", file, "--to", "pgle", "--with", f"hlo={tmp_path / 'none.txt'}")
    assert done.exit_code == 1
    assert "none.txt" in done.stderr

    done = magus("export", file, "--to", "pgle")
    assert "MGS209 error: the option 'hlo' is missing" in done.stderr


def test_products_of_batches_have_no_sizes() -> None:
    text = (
        "ENTRY %main (a: bf16[8,64,32], b: bf16[8,32,16]) -> bf16[8,64,16] {\n"
        "  %a = bf16[8,64,32]{2,1,0} parameter(0)\n"
        "  %b = bf16[8,32,16]{2,1,0} parameter(1)\n"
        "  ROOT %d = bf16[8,64,16] dot(%a, %b), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}\n"
        "}\n"
    )
    module = read_hlo(text.splitlines())
    ((computation, _), (_, _), (_, product)) = module.scheduled

    assert product_sizes(computation, product) is None


@pytest.mark.parametrize(
    ("groups", "size"),
    [
        ("replica_groups={{0,1},{2,3}}", 2),
        ("replica_groups=[2,8]<=[16]", 8),
        ("replica_groups=[4,2]<=[2,4]T(1,0)", 2),
        ("replica_groups={}", None),
        ("channel_id=1", None),
    ],
)
def test_groups_are_lists_or_a_shape(groups: str, size: int | None) -> None:
    line = f"  ROOT %r = bf16[8] all-reduce(%x), {groups}, to_apply=%add"
    (_, instruction) = read_hlo(["ENTRY %main () -> bf16[8] {", line, "}"]).scheduled[0]

    assert instruction.group_size == size


def test_shapes_have_types_of_any_width() -> None:
    arrays = arrays_of("((bf16[8,4]{1,0}, u32[]), f8e4m3fn[16]{0}, pred[3], s4[5])")

    assert [array.num_bytes for array in arrays] == [64, 4, 16, 3, 5]
    assert arrays[1] == Array("u32", ())


@pytest.mark.parametrize(
    "line",
    [
        f"  %a = bf16[{'9' * 5000}] fusion(%b), kind=kLoop",
        f"  %a = bf16[{'9' * 100}] fusion(%b), kind=kLoop",
        f"  %a = bf16[8] all-reduce(%b), replica_groups=[2,{'9' * 5000}]<=[4]",
        f"  %a = bf16[8] dot(%b, %b), lhs_contracting_dims={{{'7' * 5000}}}",
        f"  %a = {'(' * 5000} fusion(%b)",
        f"  %a = ({'), (' * 5000}) fusion(%b)",
        "  %a = bf16[8] fusion(%missing), calls=%missing",
        "  %a = bf16[8] fusion(%a), calls=%main",
    ],
    ids=lambda line: line[:24],
)
def test_hostile_texts_are_read_or_refused(line: str, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text(f"ENTRY %main () -> bf16[8] {{\n  %b = bf16[8,4] slice(%c)\n{line}\n}}\n")

    try:
        found = costs(PGLE.text(scenarios(), {"hlo": str(file)}))
    except Refused:
        return
    assert "b" in found


def test_an_empty_text_is_an_error() -> None:
    with pytest.raises(HloError):
        read_hlo([])
