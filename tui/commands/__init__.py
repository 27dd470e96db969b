"""The commands, one file each. In: arguments. Out: an exit code; results pass ``text/door.py``."""
