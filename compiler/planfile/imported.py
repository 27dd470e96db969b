"""Whether a schedule is a plan in a file. Apart from reading that, which few files need."""

from ..codes import Code
from ..text import syntax as ast
from ..text.diagnostics import Report

IMPORT = "import"


def imported(declaration: ast.Template | ast.Plan, report: Report) -> ast.Text | None:
    """Return the path of ``schedule mine for w = import "plan.json"``, None for any other schedule."""
    match declaration:
        case ast.Template(values=(ast.Name(text=word), ast.Text() as path)) if word == IMPORT:
            return path
        case ast.Template(values=(ast.Name(text=word) as name, *_)) if word == IMPORT:
            raise report.fail(Code.MGS116, "import names a file", name.span, 'import "plan.json"')
        case _:
            return None
