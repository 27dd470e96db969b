"""Schedules as a file says them.

In: template calls, plans, outlines and explore blocks. Out: ``Choice``, ``Plan``, ``Outline`` and ``Explore``.
"""
