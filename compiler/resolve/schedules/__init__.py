"""Schedules as a file says them.

In: template calls, plans, outlines, blocks of ops, explore blocks. Out: ``Schedule`` with the mode of each op, and
``Explore``.
"""
