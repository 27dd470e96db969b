"""The report of ``make coverage``: rooms, their layers, and which files are bare."""

from tests.helpers.coverage_by_room import report, room_of


def counts(branches: int, of: int) -> dict[str, dict[str, int]]:
    return {
        "summary": {
            "covered_branches": branches,
            "num_branches": of,
            "missing_branches": of - branches,
            "covered_lines": 1,
            "num_statements": 2,
        }
    }


def test_rooms_are_found_however_magus_is_installed() -> None:
    assert room_of(".venv/lib/python3.12/site-packages/magus/simcore/fold/refine.py") == "simcore/fold"
    assert room_of("compiler/resolve/values/evaluate.py") == "compiler/resolve"
    assert room_of("compiler/codes.py") == "compiler"
    assert room_of("examples/__init__.py") == ""


def test_rooms_add_up_to_layers_and_all() -> None:
    lines = report(
        {
            "simcore/fold/refine.py": counts(3, 4),
            "simcore/fold/run.py": counts(0, 6),
            "simcore/simulate.py": counts(10, 10),
            "examples/__init__.py": counts(0, 0),
        }
    )

    figures = {line.split()[0]: line.split()[1:3] for line in lines[1:4]}
    assert figures == {"all": ["13/20", "65.0%"], "simcore": ["13/20", "65.0%"], "simcore/fold": ["3/10", "30.0%"]}
    assert lines[-1].split() == ["6", "simcore/fold/run.py"]
