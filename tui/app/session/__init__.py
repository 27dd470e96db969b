"""What stands behind the screen, without Textual: an open file, its workloads, their answers, and texts of them.

Begin with ``session.py``.
"""
