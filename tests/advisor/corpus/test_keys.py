"""Keys of records: the same as ever, whatever the names of classes and functions are by now."""

from dataclasses import fields, is_dataclass
from hashlib import sha256
from types import FunctionType

import pytest

from magus.advisor.training import record as keys
from magus.advisor.training.families import draw
from magus.simcore.memo import codec

FIRST_KEYS = "d7eba67b1e092c438c8742ed2be77080069be1f25a7a5d237ec4de0282f24ed1"
"""Hash of the keys of 40 scenarios under an engine version of this test."""


def test_keys_are_those_that_stores_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "engine_version", lambda: "today")
    digest = sha256()
    for idx in range(40):
        digest.update(keys.key_of(draw(4, idx)).encode())

    assert digest.hexdigest() == FIRST_KEYS


def test_another_name_in_files_is_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = draw(4, 0)
    monkeypatch.setattr(keys, "engine_version", lambda: "today")
    before = keys.key_of(drawn)
    monkeypatch.setitem(codec.STORED_NAMES, type(drawn.scenario), "Question")

    assert keys.key_of(drawn) != before


@pytest.mark.slow
def test_functions_in_keys_have_stored_names() -> None:
    found = {part for idx in range(300) for part in functions_in(draw(4, idx).scenario.system.fabric)}

    assert found and found <= keys.FUNCTIONS.keys()


def functions_in(value: object) -> set[object]:
    if isinstance(value, FunctionType):
        return {value}
    return (
        {found for field in fields(value) for found in functions_in(getattr(value, field.name))}
        if (is_dataclass(value))
        else set()
    )
