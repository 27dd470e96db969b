"""Choices to schedules.

In: a ``Choice`` or a ``Plan``. Out: a ``Schedule``, or why there is none. Begin with ``build.py``.
"""
