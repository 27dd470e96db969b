"""Which operations may stand together in a workload, and the pattern that they form, as each says of itself."""

from collections.abc import Sequence

from ...ir import Pattern, operations
from ...ir.operations import CollectiveOperation, KernelOperation, Operation


def pattern_in_turn(calls: Sequence[Operation]) -> Pattern | None:
    """The pattern of calls of which each takes what the one before it makes; None where that is not simulated."""
    match tuple(calls):
        case (KernelOperation() | CollectiveOperation() as alone,):
            return alone.alone
        case (CollectiveOperation() as collective, KernelOperation() as kernel) if collective.name in kernel.after:
            return collective.before_kernel
        case (KernelOperation() as kernel, CollectiveOperation() as collective) if collective.name in kernel.before:
            return collective.after_kernel
        case (KernelOperation() as first, CollectiveOperation() as collective, KernelOperation() as second):
            joined = collective.name in first.before and collective.name in second.after
            return collective.between_kernels if joined and first.name in second.follows else None
        case _:
            return None


def pattern_beside(calls: Sequence[Operation]) -> Pattern | None:
    """The pattern of two calls, in any order, that need nothing of each other; None where that is not simulated."""
    match sorted(calls, key=lambda call: isinstance(call, CollectiveOperation)):
        case [KernelOperation() as kernel, CollectiveOperation() as collective] if collective.name in kernel.beside:
            return collective.beside_kernel
        case _:
            return None


def hint_of_combinations() -> str:
    """The hint that says all that is simulated."""
    known = operations.OPERATIONS
    between = either([each.name for each in known if isinstance(each, CollectiveOperation) and each.between_kernels])
    parts = [f"alone: {', '.join(each.name for each in known)}"]
    for kernel in known:
        if isinstance(kernel, KernelOperation):
            relations = (
                ("after", kernel.after),
                ("before", kernel.before),
                ("beside", kernel.beside),
                (f"after {between} of", kernel.follows),
            )
            phrases = [f"{where} {either(names)}" for where, names in relations if names]
            parts += [f"{kernel.name}: {', '.join(phrases)}"] if phrases else []
    return f"Magus simulates: {'; '.join(parts)}"


def either(names: Sequence[str]) -> str:
    """Join names for a sentence: ``a, b or c``."""
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
