"""Whether a plan is right.

In: an ``OpPlan``. Out: faults, each with a code, a step and a hint. Begin with ``check.py``.
"""
