"""Whether a plan is right.

In: a ``Schedule``. Out: faults, each with a code, a step and a hint. Begin with ``check.py``.
"""
