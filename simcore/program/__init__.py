"""Programs, which the cores run.

In: servers, pools, ops and flows, described to a ``Builder``. Out: a ``Program``, as arrays.
"""
