from fractions import Fraction

import pytest

from magus.compiler import CompileError, compile_text

HARDWARE = 'use "amd/mi300x"\nsystem node { gpus 8 x MI300X; fabric full_mesh(xgmi) }\n'


def rows(value: str, before: str = "", settings: tuple[tuple[str, str], ...] = ()) -> int:
    tensors = f"a = tensor bf16[{value}, 64]; b = tensor bf16[64, 64]"
    text = f"{before}\n{HARDWARE}workload g on node {{ {tensors}; y = gemm(a, b) }}"
    gemm = compile_text(text, settings=settings).scenario().case.shape.gemm
    assert gemm is not None
    return gemm.m


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("7 - 2 - 1", 4),
        ("64 / 4 / 2", 8),
        ("1 / 3 * 9", 3),
        ("-3 + 8", 5),
        ("8_192", 8192),
        ("1e3", 1000),
        ("200 * 50 %", 100),
        ("1 MiB / 1 KiB", 1024),
        ("1 GB/s * 1 us / 1 B", 1000),
        ("1 MB / 1 GB/s / 1 us", 1000),
        ("min(3, 5) + max(3, 5)", 8),
        ("ceil(7 / 2) + floor(7 / 2)", 7),
        ("log2(4096)", 12),
        ("u + v", 30),
        ("p", 5),
    ],
)
def test_expressions(expression: str, value: int) -> None:
    assert rows(expression, "let u = v / 2\nlet v = 20\nparam p = 5") == value


def test_order_of_declarations_does_not_matter() -> None:
    lines = [
        "let a = b * 2",
        "let b = c + 1",
        "param c = 3 in 1..10",
        'use "amd/mi300x"',
        "system node { gpus 8 x MI300X; fabric full_mesh(xgmi) }",
        "workload g on node { x = tensor bf16[a, 64]; w = tensor bf16[64, 64]; y = gemm(x, w) }",
        "schedule s for g = serial()",
        "explore g { schedules serial }",
        "expect g { s.makespan <= serial.makespan }",
    ]
    forwards, backwards = compile_text("\n".join(lines)), compile_text("\n".join(reversed(lines)))
    assert forwards.workloads == backwards.workloads
    assert forwards.params == backwards.params


@pytest.mark.parametrize(("setting", "value"), [("16", 16), ("2 * K", 256), ("1 MiB / 1 KiB", 1024)])
def test_settings(setting: str, value: int) -> None:
    assert rows("M", "let K = 128\nparam M = 8192 in 16..65536 x2", (("M", setting),)) == value


def test_the_last_setting_counts() -> None:
    assert rows("M", "param M = 8", (("M", "16"), ("M", "32"))) == 32


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("M", "8", "MGS311"),
        ("M", "1e6", "MGS311"),
        ("M", "64 us", "MGS311"),
        ("M", "", "MGS107"),
        ("M", "(", "MGS107"),
        ("M", "64 64", "MGS114"),
        ("M", "64; let b = 3", "MGS107"),
        ("M", "NaN", "MGS203"),
        ("M", "0x40", "MGS114"),
        ("M", "N", "MGS203"),
        ("m", "64", "MGS203"),
        ("K", "64", "MGS203"),
        ("M", "1 / 0", "MGS312"),
        ("M", "9" * 100, "MGS133"),
        ("M", "x" * (1 << 21), "MGS130"),
    ],
)
def test_settings_that_are_refused(name: str, text: str, code: str) -> None:
    with pytest.raises(CompileError) as caught:
        rows("M", "let K = 64\nparam M = 64 in 16..65536 x2", ((name, text),))
    assert caught.value.diagnostics[0].code.name == code
    assert caught.value.diagnostics[0].span.source.path in (f"--set {name}", "<text>")


def test_a_list_domain_takes_its_members_only() -> None:
    assert rows("M", "param M = 8 in 8, 24, 64", (("M", "24"),)) == 24
    with pytest.raises(CompileError):
        rows("M", "param M = 8 in 8, 24, 64", (("M", "16"),))


def test_params_describe_themselves() -> None:
    text = "param M = 8 in 8..64 x2\nparam d = 5 us in 0 us..10 us step 5 us\nparam n = 3\nparam r = 2 in 1..9\n"
    params = {param.name: param for param in compile_text(text, settings=(("M", "16"),)).params}
    assert (params["M"].value, params["M"].domain, params["M"].choices) == ("16", "8..64 x2", ("8", "16", "32", "64"))
    assert params["d"].choices == ("0 us", "5 us", "10 us")
    assert (params["n"].value, params["n"].domain, params["n"].choices) == ("3", "", ())
    assert params["r"].choices == ()
    for choice in params["d"].choices:
        assert compile_text(text, settings=(("d", choice),)).params[1].value == choice


def test_a_range_that_its_steps_do_not_reach_warns() -> None:
    compiled = compile_text("param M = 8 in 8..100 x2")
    assert [found.code.name for found in compiled.warnings] == ["MGS313"]


def test_values_are_exact() -> None:
    text = f"""{HARDWARE}gpu G extends MI300X {{ gemm {{ mma 1 / 3 }} }}
system s {{ gpus 1 x G; fabric full_mesh(xgmi) }}
workload g on s {{ a = tensor bf16[8, 8]; y = gemm(a, a) }}"""
    assert compile_text(text).scenario().case.gpu.gemm.mma_fraction == Fraction(1, 3)
