"""The answer from findings: which schedule wins, why, with what confidence, what is doubtful, and as a document.

Begin with ``answer.py``.
"""
