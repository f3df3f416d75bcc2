"""Versions of packages that must agree on all machines of a run."""

import platform

import numpy as np

from callboard import __version__
from callboard.launch.processes.package_versions import PINS, version_of, versions


def test_a_package_has_its_installed_version_or_none():
    assert version_of("numpy") == np.__version__
    assert version_of("no-such-package") is None


def test_the_pins_are_those_of_this_installation():
    assert {name: version_of(name) for name in PINS} == PINS


def test_machines_agree_on_python_by_its_minor_version_and_on_packages_exactly():
    found = versions()
    assert found["the version of Python"] == platform.python_version().rpartition(".")[0]
    assert found["the version of callboard"] == __version__
    assert found["the version of tensorflow"] == PINS["tensorflow"]
    assert all(isinstance(version, str) for version in found.values())
