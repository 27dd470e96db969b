"""Plans to programs.

In: a ``System`` and a ``Plan``. Out: a ``Program`` with the names of its ops. Begin with ``plan.py``, which lowers
the parts one after the other; ``steps.py`` lowers the steps of one.
"""
