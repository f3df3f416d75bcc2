"""The agents of Stable-Baselines3 in the environments of the study `defaults`, for the same steps.

Each run is in a directory as the study's, `DIR/AGENT-ENV/seed-N`, for `callboard compare`.  Runs that are finished are
skipped, and one that was interrupted begins anew.
"""

import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ...errors import CallboardError
from ...launch.comparison.study_definition import read_study
from .rounds import PEERS

_FAMILIES = {"ppo": "ppo", "a2c": "a2c", "apex": "dqn", "sac": "sac", "td3": "td3"}
"""The agent of Stable-Baselines3 of the same family, for agents that have one."""
_SCRIPT = pathlib.Path(__file__).parent / "inside" / "sb3_defaults.py"


class DefaultsRun(NamedTuple):
    """An agent of Stable-Baselines3 in an environment."""

    agent: str
    env: str
    steps: int
    seed: int

    @property
    def name(self) -> str:
        return f"sb3-{self.agent}-{self.env}/seed-{self.seed}"


def defaults_runs(seeds: Sequence[int], only: str = "") -> Iterator[DefaultsRun]:
    """Yields the runs, seed by seed, whose names contain a text.

    Environments that only Callboard makes by their names, such as `procgen:coinrun` and MinAtar's and MiniGrid's, whose
    observations the default networks of Stable-Baselines3 do not take, are left out.
    """
    study = read_study("defaults")
    for seed in seeds:
        for place in study.environments or []:
            if re.search("[:/]|^MiniGrid", place.env):
                continue
            for agent in place.agents or []:
                if agent in _FAMILIES:
                    run = DefaultsRun(_FAMILIES[agent], place.env, int(place.settings["max_steps"]), seed)
                    if only in run.name:
                        yield run


def train_peer(seeds: Sequence[int], only: str, directory: pathlib.Path, notify: Callable[[str], None]) -> None:
    """Makes the runs that are not finished, one after the other; one that fails does not stop the others.

    Args:
      seeds: seeds of each.
      only: part of the names of the runs that are made.
      directory: where they are.
      notify: receives a line about each.

    Raises:
      CallboardError: the virtual environment is missing, there is no such run, or one has failed.
    """
    python = next(peer.python() for peer in PEERS if peer.venv == "sb3")
    if not python.exists():
        raise CallboardError(f"{python} does not exist; make it with benchmarks/peers/setup")
    runs = list(defaults_runs(seeds, only))
    if not runs:
        raise CallboardError(f"no run has {only!r} in its name")
    failed = []
    for run in runs:
        final = directory / run.name
        if final.exists():
            notify(f"{run.name} is already finished")
            continue
        notify(run.name)
        unfinished = final.with_name(f"{final.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        arguments = [run.agent, run.env, str(run.steps), str(run.seed), str(unfinished)]
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        ended = subprocess.run([str(python.absolute()), str(_SCRIPT), *arguments], env={**os.environ, **threads})
        if ended.returncode:
            failed.append(run.name)
        else:
            unfinished.rename(final)
    if failed:
        raise CallboardError(f"{len(failed)} of {len(runs)} runs have failed: {', '.join(failed)}")
