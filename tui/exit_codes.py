"""Exit codes of every command."""

from enum import IntEnum


class Exit(IntEnum):
    """0 done, 1 the input is wrong, 2 usage, 3 no feasible schedule or, with ``--strict``, a profile not validated.

    130 is what shells say of Ctrl-C: the answer, if there is one, is the best found until then.
    """

    DONE = 0
    INPUT = 1
    USAGE = 2
    NOT_FEASIBLE = 3
    INTERRUPTED = 130
