"""The reader of runtimes: needs nothing of Magus, takes the first rule that matches, and none of an altered table."""

import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.advisor.policy import reader
from magus.advisor.policy.reader import Policy, PolicyError
from magus.advisor.policy.table import rules_hash

RULE = {
    "pattern": "AG+GEMM",
    "gpu": "H100",
    "ranks": 8,
    "topology": "switch",
    "dtype": "bf16",
    "n": 3584,
    "k": 8192,
    "axis": "m",
    "min": 16,
    "max": 1024,
    "multiple_of": 16,
    "schedule": "first",
    "ops": [{"op": "w", "schedule": "first"}],
}
SECOND = {**RULE, "multiple_of": 8, "schedule": "second"}
REQUESTED = {
    "pattern": "AG+GEMM",
    "gpu": "H100",
    "ranks": 8,
    "topology": "switch",
    "dtype": "bf16",
    "n": 3584,
    "k": 8192,
}


def table(*rules: Any) -> dict[str, Any]:
    return {"schema": "magus-policy/2", "hash": rules_hash(list(rules)), "rules": list(rules)}


def test_it_needs_nothing_but_python() -> None:
    source = Path(str(reader.__file__)).read_text(encoding="utf-8")
    modules = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in modules}

    assert names == {"__future__", "hashlib", "json", "typing"}
    assert all(name in sys.stdlib_module_names for name in names if name)
    assert len(source.splitlines()) < 95


@pytest.mark.parametrize(
    ("size", "schedule"),
    [(16, "first"), (1024, "first"), (24, "second"), (8, None), (1032, None), (20, None), (16.0, None), (None, None)],
)
def test_the_first_rule_that_matches_wins(size: Any, schedule: str | None) -> None:
    found = Policy(table(RULE, SECOND)).rule(**REQUESTED, m=size)
    assert (found["schedule"] if found else None) == schedule


@pytest.mark.parametrize("key", ["pattern", "gpu", "ranks", "topology", "dtype", "n", "k"])
def test_another_question_has_no_answer(key: str) -> None:
    policy = Policy(table(RULE))
    assert policy.rule(**{**REQUESTED, key: "other"}, m=16) is None
    assert policy.rule(**{name: value for name, value in REQUESTED.items() if name != key}, m=16) is None
    assert policy.rule(**REQUESTED, m=16) == {**RULE, "size": 16}


@pytest.mark.parametrize(
    ("size", "schedule", "padded"),
    [
        (29, "first", 32),
        (28, "second", 32),
        (25, "second", 32),
        (1, None, None),
        (13, "first", 16),
        (1021, "first", 1024),
    ],
)
def test_sizes_between_multiples_are_padded_by_no_more_than_a_rule_allows(
    size: int, schedule: str | None, padded: int | None
) -> None:
    found = Policy(table({**RULE, "pad": 3}, {**SECOND, "pad": 7})).rule(**REQUESTED, m=size)
    assert ((found["schedule"], found["size"]) if found else (None, None)) == (schedule, padded)


def test_what_was_altered_is_refused() -> None:
    document = table(RULE)
    document["rules"][0]["max"] = 1 << 30
    with pytest.raises(PolicyError, match="hash"):
        Policy(document)


@pytest.mark.parametrize(
    "rule",
    [
        {},
        None,
        {**RULE, "multiple_of": 0},
        {**RULE, "min": "16"},
        {**RULE, "max": True},
        {**RULE, "axis": 3},
        {**RULE, "pad": "7"},
        {**RULE, "gpu": None},
        {**RULE, "ranks": None},
        {**RULE, "ops": []},
        {**RULE, "ops": [3]},
        {name: value for name, value in RULE.items() if name != "dtype"},
    ],
)
def test_a_rule_of_the_wrong_form_is_refused(rule: Any) -> None:
    with pytest.raises(PolicyError, match="a rule has no"):
        Policy(table(rule))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b"null",
        b"[]",
        b'{"schema": "magus-policy/2"}',
    ],
)
def test_a_file_that_is_no_table_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_bytes(data)
    with pytest.raises(PolicyError):
        Policy.load(str(path))


@pytest.mark.parametrize("schema", ["magus-policy/1", "magus-layer-policy/1"])
def test_an_older_table_is_refused_by_name(schema: str) -> None:
    with pytest.raises(PolicyError, match=f"{schema} is of an older Magus: write it again"):
        Policy({**table(RULE), "schema": schema})


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    with path.open("wb") as file:
        file.truncate(reader.MAX_BYTES + 1)
    with pytest.raises(PolicyError, match="larger"):
        Policy.load(str(path))


@given(st.binary(max_size=40), st.integers(0, 400), st.integers(0, 40))
def test_damage_is_refused_or_changes_nothing(tmp_path_factory: Any, junk: bytes, at: int, cut: int) -> None:
    whole = json.dumps(table(RULE, SECOND)).encode()
    damaged = whole[:at] + junk + whole[at + cut :]
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_bytes(damaged)
    try:
        policy = Policy.load(str(path))
    except PolicyError:
        return
    assert policy.rules == [RULE, SECOND]
