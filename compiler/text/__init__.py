"""Characters to names.

In: the text of a file and of what it includes. Out: a ``Scope`` of declarations, still unresolved, and a ``Report``
of mistakes. Begin with ``load.py``.
"""
