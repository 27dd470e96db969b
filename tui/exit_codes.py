"""Exit codes of every command."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit code.

    0: done. 1: the input is wrong, or an expectation or a search of a corpus failed. 2: usage. 3: no schedule is
    feasible or, with ``--strict``, the profile is not validated. 130: stopped by Ctrl-C; an answer that was printed is
    the best found until then.
    """

    DONE = 0
    INPUT = 1
    USAGE = 2
    NOT_FEASIBLE = 3
    INTERRUPTED = 130
