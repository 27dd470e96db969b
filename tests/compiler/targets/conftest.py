"""Kernels are interpreted: Triton looks at its environment when it is imported."""

import os

os.environ["TRITON_INTERPRET"] = "1"
