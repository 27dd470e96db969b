"""A problem of two kernels as templates are given it, and its pattern again."""

from dataclasses import replace

from magus.compiler.ir import Adds, Cutting, Pattern
from magus.compiler.templates.base import TemplateInput


def staged(problem: TemplateInput) -> TemplateInput:
    """``problem``; of GEMM+A2A+GEMM what the first kernel sees with what the second does."""
    if problem.pattern is not Pattern.GEMM_A2A_GEMM:
        return problem
    then = replace(problem, pattern=Pattern.A2A_GEMM, cutting=Cutting(Adds.COLUMNS))
    return replace(problem, pattern=Pattern.GEMM_A2A, then=then)


def pattern_of(problem: TemplateInput) -> Pattern:
    """The pattern of the whole."""
    return problem.pattern if problem.then is None else Pattern.GEMM_A2A_GEMM
