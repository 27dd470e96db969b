"""parse(print(x)) == x, on generated syntax trees."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler import format_text
from magus.compiler.text import syntax as ast
from magus.compiler.text.diagnostics import Report, Source
from magus.compiler.text.fmt import print_file
from magus.compiler.text.parsing.parse import parse_file
from tests.helpers.marks import examples

names = st.sampled_from(["a", "rows", "x2", "gpu", "on", "shard", "K_1", "all", "let", "mgs", "with", "extends"])
texts = st.sampled_from(["", "a b", "# no comment", "{ ; }", "a, b", "caf\N{LATIN SMALL LETTER E WITH ACUTE}"])
numbers = st.sampled_from(["0", "8192", "8_192", "1.5", "1e6", "2.5E-3"])
units = st.sampled_from(["GB/s", "Gb/s", "KiB", "%", "us", "cycles", "TFLOP/s", "GHz", "B"])
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=", "in")


def _postfix(inner: st.SearchStrategy[ast.Expression]) -> st.SearchStrategy[ast.Expression]:
    base = st.builds(ast.Name, names)
    arguments = st.lists(argument(inner), max_size=3).map(tuple)
    subscripts = st.lists(st.one_of(inner, st.builds(ast.Slice, inner, inner)), min_size=1, max_size=2).map(tuple)
    call = st.builds(ast.Call, base, arguments)
    return st.one_of(
        call,
        st.builds(ast.Index, st.one_of(base, call), subscripts),
        st.builds(ast.Member, st.one_of(base, call), names),
    )


def argument(inner: st.SearchStrategy[ast.Expression]) -> st.SearchStrategy[ast.Argument]:
    return st.builds(ast.Argument, st.none() | names, inner.map(lambda value: (value,)))


def _chains(inner: st.SearchStrategy[ast.Expression]) -> st.SearchStrategy[ast.Expression]:
    factor = st.one_of(atoms, st.builds(ast.Parens, st.tuples(inner)), st.builds(ast.Negate, atoms_of_words))
    product = st.builds(ast.ChainNode, factor, rest(("*", "/"), factor))
    term = st.one_of(factor, product)
    total = st.builds(ast.ChainNode, term, rest(("+", "-"), term))
    return st.one_of(product, total)


def rest(
    operators: tuple[str, ...], operand: st.SearchStrategy[ast.Expression]
) -> st.SearchStrategy[tuple[tuple[str, ast.Expression], ...]]:
    return st.lists(st.tuples(st.sampled_from(operators), operand), min_size=1, max_size=3).map(tuple)


atoms_of_words: st.SearchStrategy[ast.Expression] = st.builds(ast.Name, names) | st.builds(ast.NumberNode, numbers)
atoms: st.SearchStrategy[ast.Expression] = st.one_of(
    atoms_of_words, st.builds(ast.Measure, numbers, units), st.builds(ast.Text, texts)
)
sums: st.SearchStrategy[ast.Expression] = st.recursive(
    atoms,
    lambda inner: st.one_of(
        _postfix(inner),
        _chains(inner),
        st.builds(ast.Listed, st.lists(inner, max_size=3).map(tuple)),
        st.builds(ast.Parens, st.lists(inner, min_size=1, max_size=2).map(tuple)),
    ),
    max_leaves=5,
)
spreads = st.one_of(sums, st.builds(ast.Spread, sums, sums))
ranges = st.one_of(spreads, st.builds(ast.Range, spreads, spreads), st.builds(ast.Slice, spreads, spreads))
expressions = st.one_of(ranges, st.builds(ast.Compare, ranges, st.sampled_from(COMPARISONS), ranges))


def side_by_side(parts: tuple[ast.Expression, ...]) -> bool:
    """Whether each value but the first starts so that it cannot be read as going on with the one before."""
    return all(isinstance(part, ast.Name | ast.NumberNode | ast.Measure | ast.Text) for part in parts[1:])


values = st.lists(sums, min_size=1, max_size=2).map(tuple).filter(side_by_side)
notes = st.builds(ast.Note, names, st.lists(argument(sums), max_size=2).map(tuple), st.none() | texts)
groups = st.builds(
    ast.GroupNode, st.lists(expressions, min_size=1, max_size=3).map(tuple).filter(side_by_side), st.none() | notes
)
phrases = st.lists(groups, min_size=1, max_size=3).map(tuple)
defines = st.builds(ast.Define, names, phrases)
says = st.builds(ast.Say, phrases)
blocks = st.recursive(
    st.builds(ast.BlockNode, st.lists(defines | says, max_size=4).map(tuple)),
    lambda inner: st.builds(
        ast.BlockNode, st.lists(st.one_of(defines, says, st.builds(ast.Say, phrases, inner)), max_size=3).map(tuple)
    ),
    max_leaves=3,
)
plain_names = st.sampled_from(["a", "rows", "node", "K_1"])
paths = st.builds(ast.Path, st.lists(plain_names, min_size=1, max_size=2).map(tuple))
bindings = st.builds(ast.Binding, plain_names, values)
declarations: st.SearchStrategy[ast.Declaration] = st.one_of(
    st.builds(ast.Use, texts, st.none() | plain_names),
    st.builds(ast.Include, texts),
    st.builds(ast.Let, names, values),
    st.builds(ast.ParamNode, names, values, st.none() | phrases),
    st.builds(ast.DeviceNode, st.sampled_from(["gpu", "link", "switch"]), plain_names, st.none() | paths, blocks),
    st.builds(ast.SystemNode, plain_names, blocks),
    st.builds(ast.WorkloadNode, plain_names, paths, blocks),
    st.builds(ast.TemplateNode, plain_names, paths, values),
    st.builds(ast.PlanNode, plain_names, paths, blocks),
    st.builds(ast.ExploreNode, paths, blocks),
    st.builds(ast.Expect, st.none() | paths, st.lists(bindings, max_size=2).map(tuple), blocks),
)


versions = st.builds(ast.Version, st.just("1"))
files = st.builds(ast.File, st.none() | versions, st.lists(declarations, max_size=4).map(tuple), st.just(()))


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
@given(files)
@examples(20, deep=600)
def test_printing_and_parsing_gives_the_same_tree(file: ast.File) -> None:
    text = print_file(file)
    report = Report()
    with report.attempt():
        assert parse_file(Source("a.mgs", text), report) == file, text
    assert not report.diagnostics
    assert format_text(text) == text
