"""A page in headless Chromium: the document after its scripts ran, and what it logged to the console."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@dataclass(frozen=True, slots=True)
class Opened:
    dom: str
    console: tuple[str, ...]


def opened(page: Path, folder: Path) -> Opened:
    """Open ``page`` with a profile of its own in ``folder``."""
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"),
            *(f"--user-data-dir={folder}", "--dump-dom", page.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return Opened(done.stdout, tuple(re.findall(r"CONSOLE.*?\] (.*)", done.stderr)))
