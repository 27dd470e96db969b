"""What ``benchmarks.house`` counts: code lines and nothing between them, parameters, names that mean two things."""

from pathlib import Path

from benchmarks.house import beyond_limits, read_folder, wide_functions

PLAIN = '''"""What the module is for,

in two paragraphs."""

LIMIT = 3  # a comment beside code
"""What the limit is."""
TEXT = """two
lines"""


class Twice:
    """A class."""

    def wide(self, a, b, /, c, *d, e, f, **g):
        """Docstring."""

        # A comment alone.
        return (
            a,
        )
'''


def test_code_lines_parameters_and_homonyms_are_counted(tmp_path: Path) -> None:
    long = "def long():\n" + "    print()\n" * 50
    for name, text in (("a/one.py", PLAIN), ("a/two.py", "class Twice:\n    pass\n"), ("a/long.py", long)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    modules = read_folder("a", tmp_path)
    files, long_ones, wide, homonyms, folders = beyond_limits(modules).values()

    assert {each.path: each.lines for each in modules} == {"a/long.py": 51, "a/one.py": 8, "a/two.py": 2}
    assert long_ones == ("a/long.py:1 long 51",)
    assert wide == ("a/one.py:14 wide 7",)
    assert homonyms == ("Twice a/one.py a/two.py",)
    assert not files and not folders


def test_a_class_of_the_syntax_tree_may_share_its_name_with_what_it_resolves_to(tmp_path: Path) -> None:
    paths = ("compiler/text/syntax.py", "compiler/ir/scenario.py", "compiler/other.py")
    counts = []
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("class Explore:\n    pass\n")
        counts.append(len(beyond_limits(read_folder("compiler", tmp_path))["class names defined twice"]))

    assert counts == [0, 0, 1]


def test_full_folders_and_long_files_are_listed(tmp_path: Path) -> None:
    for name in ("__init__", *(f"m{index}" for index in range(23))):
        (tmp_path / "p" / f"{name}.py").parent.mkdir(exist_ok=True)
        (tmp_path / "p" / f"{name}.py").write_text("A = 1\n" * (301 if name == "m7" else 1))

    beyond = beyond_limits(read_folder("p", tmp_path))

    assert beyond["files above 300 code lines"] == ("p/m7.py 301",)
    assert beyond["folders with more than 22 modules"] == ("p 23",)


def test_commands_of_the_command_line_are_counted_apart(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    wide = "def {}(a, b, c, d, e, f, g):\n    pass\n"
    (tmp_path / "t" / "cli.py").write_text(f"@app.command()\n{wide.format('run')}\n\n{wide.format('helper')}")

    modules = read_folder("t", tmp_path)

    assert wide_functions(modules, commands=True) == ("t/cli.py:2 run 7",)
    assert wide_functions(modules) == ("t/cli.py:6 helper 7",)
