"""In: a ``Request``, the question of a program in numbers and names. Out: ``.mgs`` text, and the ``OpCase`` of it."""
