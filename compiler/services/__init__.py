"""What an editor asks of a text, finished or half-written. In: a text and a place in it. Out: mistakes, words, names.

Begin with ``document.py``. Nothing here knows a protocol or a screen; ``magus lsp`` and the terminal UI do.
"""
