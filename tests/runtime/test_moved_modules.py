"""Modules under their old names."""

import importlib
import importlib.util
import pickle
import sys

import pytest

from callboard.launch.experiments.experiment import Experiment
from callboard.runtime import moved_modules

MOVED = dict(line.split() for line in moved_modules._MOVED.split("\n") if line)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("old", MOVED)
def test_the_new_name_exists(old):
    assert importlib.util.find_spec(f"callboard.{MOVED[old]}")
    assert old not in MOVED.values()


@pytest.mark.parametrize("name", ["launch.settings", "launch.cli.command", "atomic_files", "launch.comparison"])
def test_a_module_is_the_same_under_its_old_name(name):
    package = max((old for old in MOVED if name == old or name.startswith(f"{old}.")), key=len)
    with pytest.warns(DeprecationWarning, match=f"callboard.{name} is now callboard."):
        sys.modules.pop(f"callboard.{name}", None)
        old = importlib.import_module(f"callboard.{name}")
    assert old is importlib.import_module(f"callboard.{MOVED[package]}{name.removeprefix(package)}")
    assert old.__spec__.name == old.__name__ != f"callboard.{name}"


def test_classes_of_old_pickles_are_found():
    data = b"ccallboard.launch.experiment\nExperiment\n."
    assert pickle.loads(data) is Experiment


def test_modules_that_never_were_are_not_found():
    for name in ("callboard.no_such", "callboard.launch.no_such", "callboard.launch.cli.no_such"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)
