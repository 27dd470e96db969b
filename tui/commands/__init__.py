"""The commands, one file each. In: arguments. Out: an exit code, and text through ``text/door.py``."""
