"""Finds the packages: the repository root is the package `callboard`.  All other metadata is in pyproject.toml."""

from setuptools import find_packages, setup

FOUND = find_packages(".", exclude=["callboard*", "tests*", "docs*", "examples*"])

# `script_name` keeps this file, which is in the root of the package, out of the wheel.
setup(script_name="setup.py", packages=["callboard", *(f"callboard.{name}" for name in FOUND)])
