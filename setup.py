"""Finds the packages: the checkout is the package ``magus``, and pyproject.toml can find packages but rename none."""

from setuptools import find_packages, setup

ROOMS = find_packages(exclude=["benchmarks*", "tests*"])

setup(
    packages=["magus", *(f"magus.{room}" for room in ROOMS)],
    script_name="setup.py",  # which lies in the folder of the package and is no module of it
)
