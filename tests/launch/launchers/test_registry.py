"""The registry of launchers: names, options, and what cannot be made."""

import dataclasses
import re
import subprocess
import sys

import pytest

from callboard.cli.command_parser import CommandParser
from callboard.cli.train import parse_launcher
from callboard.errors import CallboardError
from callboard.launch.launchers.launcher import Launcher
from callboard.launch.launchers.local_launchers import ThreadsLauncher
from callboard.launch.launchers.registry import (
    DEFAULT_LAUNCHER,
    LAUNCHERS,
    launcher_arguments,
    launcher_class,
    launcher_options,
    make_launcher,
)


@dataclasses.dataclass(frozen=True)
class WithoutRun(Launcher):
    name = "without_run"


@dataclasses.dataclass(frozen=True)
class WithoutName(Launcher):
    def run(self, program, run, monitor):
        raise NotImplementedError


class NoLauncher:
    pass


@pytest.mark.parametrize(
    "name, message",
    [
        (f"{__name__}:WithoutRun", "WithoutRun' lacks the method run; add it to the class"),
        (f"{__name__}:WithoutName", "launcher WithoutName has no name; set `name` in the class"),
        ("thread", "unknown launcher 'thread'; did you mean 'threads'?"),
        ("x", "choose from inline, threads, processes"),
        ("no_module:A", "launcher 'no_module:A' cannot be imported"),
        ("os:system", "is refused"),
        (f"{__name__}:NoLauncher", "is not a dataclass that extends callboard's Launcher"),
        ("callboard.callbacks:Callbacks", "is refused: it belongs to the package callboard"),
        ("hosts", "the launcher hosts needs options; pass HostsLauncher(cluster=..., host=...) instead of its name"),
    ],
)
def test_a_launcher_that_cannot_be_made_is_refused(name, message):
    with pytest.raises(CallboardError, match=re.escape(message)):
        make_launcher(name)


@pytest.mark.parametrize("name", LAUNCHERS)
def test_every_launcher_declares_its_name_and_documents_its_options(name):
    launcher = launcher_class(name)
    assert launcher.name == name
    assert issubclass(launcher, Launcher) and launcher.__dataclass_params__.frozen
    for field in dataclasses.fields(launcher):
        assert f"      {field.name}: " in launcher.__doc__
    launcher_options(launcher)


def test_an_option_that_every_run_has_is_refused():
    @dataclasses.dataclass(frozen=True)
    class Patient(ThreadsLauncher):
        patience: float = 10.0

    with pytest.raises(CallboardError, match="launcher Patient has the option --patience, which every run has: rename"):
        launcher_options(Patient)
    Patient.option_prefix = "my_"
    assert "my_patience" in launcher_options(Patient)


def test_options_are_given_by_their_names_on_the_command_line():
    options = {"ray_address", "ray_cpus", "ray_gpus", "ray_strategy", "ray_wait"}
    assert set(launcher_options(launcher_class("ray"))) == options
    assert launcher_options(launcher_class(DEFAULT_LAUNCHER)) == {}
    launcher = make_launcher("ray", {"ray_wait": 5, "ray_strategy": "SPREAD"})
    assert (launcher.wait, launcher.strategy, launcher.address) == (5, "SPREAD", None)
    with pytest.raises(CallboardError, match="ray_wait must be a whole number of at least 0, not -1"):
        make_launcher("ray", {"ray_wait": -1})


@dataclasses.dataclass(frozen=True)
class OwnLauncher(Launcher):
    """Runs nothing.

    Attributes:
      careful: whether it is careful.
    """

    name = "own"
    careful: bool = True

    def run(self, program, run, monitor):
        raise NotImplementedError


@pytest.mark.parametrize(
    "name, options, arguments",
    [
        ("processes", {}, []),
        ("inline", {}, ["--launcher", "inline"]),
        ("threads", {"eager": True}, ["--launcher", "threads", "--eager"]),
        (
            "ray",
            {"ray_wait": 5, "ray_address": "auto", "ray_cpus": {"actor": 0.5}, "ray_strategy": "PACK"},
            ["--launcher", "ray", "--ray-address", "auto", "--ray-cpus", '{"actor": 0.5}', "--ray-wait", "5"],
        ),
        (f"{__name__}:OwnLauncher", {"careful": False}, ["--launcher", f"{__name__}:OwnLauncher", "--no-careful"]),
    ],
)
def test_the_arguments_of_a_launcher_make_an_equal_one(name, options, arguments):
    launcher = make_launcher(name, options)
    assert launcher_arguments(launcher) == arguments
    known, given = name if "--launcher" in arguments else DEFAULT_LAUNCHER, arguments[2:]
    assert parse_launcher(known, given, CommandParser("callboard train")) == (launcher, [])


@pytest.mark.slow("daily")
def test_launchers_are_listed_without_tensorflow_launchpad_and_ray():
    script = """
import sys
from callboard.launch.launchers.registry import LAUNCHERS, launcher_class
print([launcher_class(name).name for name in LAUNCHERS], {"tensorflow", "launchpad", "ray"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == f"{list(LAUNCHERS)} set()\n"
