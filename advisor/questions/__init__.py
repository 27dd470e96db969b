"""Questions of programs. In: a request or a scenario. Out: an ``Advice``. Begin with ``advisor.py``."""
