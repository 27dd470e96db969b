"""The changelog stays a list: known headings, an entry of one or two lines, nothing between."""

import re

from magus import __version__
from tests.helpers.paths import ROOT
from tests.helpers.some import some

TEXT = (ROOT / "CHANGELOG.md").read_text()
VERSION = re.compile(r"^## (\d+\.\d+\.\d+) - (unreleased|\d{4}-\d\d-\d\d)$", re.MULTILINE)
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
GROUPS = {
    "Language",
    "Hardware library",
    "Workloads",
    "Training steps",
    "Models",
    "Trees for collectives",
    "Schedules",
    "Simulator",
    "Advice",
    "Expectations and papers",
    "Calibration and validation",
    "Command line",
    "Terminal UI",
    "Files and robustness",
    "Python API",
    "Development",
}


def entries() -> list[list[str]]:
    found: list[list[str]] = []
    for line in TEXT.splitlines():
        if line.startswith("- "):
            found.append([line])
        elif line.startswith("  "):
            found[-1].append(line)
    return found


def test_the_newest_version_is_that_of_the_package() -> None:
    versions = [number for number, _ in VERSION.findall(TEXT)]

    assert versions[0] == __version__
    assert len(re.findall("^## ", TEXT, re.MULTILINE)) == len(versions) == len(set(versions))


def test_headings_are_known_and_said_once_in_a_version() -> None:
    for version in some(re.split("^## ", TEXT, flags=re.MULTILINE)[1:]):
        for kind in some(re.split("^### ", version, flags=re.MULTILINE)[1:]):
            groups = re.findall("^#### (.*)$", kind, re.MULTILINE)
            assert kind.splitlines()[0] in KINDS
            assert set(groups) <= GROUPS
            assert len(set(groups)) == len(groups)


def test_an_entry_is_a_dash_and_one_or_two_short_lines() -> None:
    assert entries()
    for entry in entries():
        assert len(entry) <= 2, entry[0]
        assert max(map(len, entry)) <= 120, entry[0]
        assert entry[-1].endswith("."), entry[0]


def test_nothing_under_a_heading_is_outside_an_entry() -> None:
    for group in some(re.split("^#### ", TEXT, flags=re.MULTILINE)[1:]):
        _, first, *rest = re.split("^##+ ", group, flags=re.MULTILINE)[0].splitlines()
        assert first == ""
        assert all(line.startswith(("- ", "  ")) for line in some(rest) if line), group.splitlines()[0]
