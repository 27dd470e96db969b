"""Schedules to programs.

In: a ``Scenario`` under a ``Schedule``. Out: a ``Program`` with the names of its ops. Begin with ``plan.py``.
"""
