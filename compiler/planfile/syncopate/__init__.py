"""CommPlans of Syncopate. In: the text of a Python file, or an ``OpPlan``. Out: a ``WrittenPlan``, or that text."""
