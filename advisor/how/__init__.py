"""How to carry out a schedule. In: a ``Scenario`` and a ``Schedule``. Out: a ``How``: its plan in few steps."""
