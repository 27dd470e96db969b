"""The commands, one file each, in the rooms that ``verbs`` has; beside them what they share.

In: arguments. Out: an exit code, and text through ``text/door.py``.
"""
