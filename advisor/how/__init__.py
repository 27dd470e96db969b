"""How to carry out a schedule. In: an ``OpCase`` and an ``OpPlan``. Out: a ``How``: its plan in few steps."""
