"""Programs, which the cores run.

In: servers, pools, ops and flows, described to a ``ProgramBuilder``. Out: a ``Program``, as arrays.
"""
