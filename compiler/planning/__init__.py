"""Choices to schedules.

In: an ``OpChoice`` or a ``WrittenPlan``. Out: an ``OpPlan``, or why there is none. Begin with ``build.py``.
"""
