"""Where the processes of one machine meet: names of files, exit codes and the network interface."""

import os
import sys

JOB, REPORTS, STORE = "job", "reports", "store"
"""Files in the folder of a run: what to do, what became of it, and where ranks find each other."""
LOST = 3
"""Exit code of a process that lost another one."""
INTERFACE = "GLOO_SOCKET_IFNAME"


def loopback() -> dict[str, str]:
    """Return the environment in which gloo stays on this machine, unless it already says which interface to take."""
    return {} if INTERFACE in os.environ else {INTERFACE: "lo0" if sys.platform == "darwin" else "lo"}
