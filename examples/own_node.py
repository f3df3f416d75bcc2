"""Nodes of your own in the program graph: a server of the newest policy's actions, and a player that uses it.

Run from the root of the repository, with any launcher that has a thread or a process for each node:

    callboard train --recipe impala-cartpole --add-nodes examples.own_node:add_nodes --launcher threads

or with Launchpad alone, without a launcher of Callboard:

    python -m examples.own_node --lp_launch_type local_mt

The player writes the returns of its episodes to `played.jsonl` in the run directory.
"""

import json
import sys
import threading
from typing import Any

import gymnasium
import launchpad as lp
import numpy as np
from absl import flags

from callboard.agents.variables.weights import WeightClient
from callboard.data import Timestep
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.settings import parse_experiment, read_recipe
from callboard.launch.nodes.acting.compiled_policies import compile_policy
from callboard.launch.nodes.node import Unreachable
from callboard.launch.program import make_program
from callboard.launch.program_nodes import handle_of
from callboard.launch.run import make_run
from callboard.settings.named_objects import nameable

CALL_SECONDS = 2.0


class PolicyServer:
    """Serves the greedy actions of the newest policy.

    Args:
      run: the run.
      learner: client of the learner.
    """

    def __init__(self, run: Run, learner: Any):
        agent = run.experiment.agent
        networks = agent.make_networks(run.layout)
        self._policy = compile_policy(run.experiment, run.layout, networks, "evaluate", first_slot=0, count=1)
        self._weights = WeightClient(learner, self._policy.policy.variables)
        self._lock = threading.Lock()

    def act(self, observation: list[float]) -> tuple[int, int]:
        """Returns the action for an observation, and the learner step of the weights; -1 before the first weights.

        Arguments of calls over Courier must be plain Python values.
        """
        no, zero = np.zeros(1, bool), np.zeros(1, np.float32)
        timestep = Timestep(np.array([observation], np.float32), reward=zero, discount=zero + 1, first=no, last=no)
        with self._lock:
            self._weights.apply()
            action, _ = self._policy(timestep)
            version = self._weights.version
        return int(action[0]), -1 if version is None else version.step

    def run(self) -> None:
        """Fetches weights until the program stops; Launchpad serves the other public methods in the meantime."""
        stop = lp.stop_event()
        while not stop.wait(0.1):
            try:
                self._weights.fetch()
            except Unreachable:
                pass  # The learner is not up yet, or it is being restarted.


class Player:
    """Plays episodes with the actions of the server, and records how well the policy plays as the run proceeds.

    Args:
      run: the run.
      server: client of the `PolicyServer`.
      coordinator: client of the coordinator.
    """

    def __init__(self, run: Run, server: Any, coordinator: Any):
        self._environment = gymnasium.make(str(run.experiment.env))
        self._path = run.directory.path / "played.jsonl"
        self._server = server
        self._coordinator = coordinator

    def run(self) -> None:
        stop = lp.stop_event()
        while not stop.is_set():
            try:
                episode_return, step = self._play(stop)
                environment_steps = self._coordinator.status()["environment_steps"]
            except Unreachable:
                continue
            if stop.is_set():
                return
            row = {"environment_steps": environment_steps, "learner_step": step, "return": episode_return}
            with self._path.open("a") as file:
                file.write(json.dumps(row) + "\n")

    def _play(self, stop: threading.Event) -> tuple[float, int]:
        """Plays an episode; returns its return, and the learner step of the weights of its last action."""
        observation, _ = self._environment.reset()
        episode_return, step, over = 0.0, -1, False
        while not over and not stop.is_set():
            action, step = self._server.act(observation.tolist())
            observation, reward, terminated, truncated, _ = self._environment.step(action)
            episode_return += float(reward)
            over = terminated or truncated
        return episode_return, step


@nameable
def add_nodes(program: lp.Program, run: Run) -> None:
    """Adds both nodes to a program."""
    learner, coordinator = handle_of(program, "learner/0"), handle_of(program, "coordinator/0")
    timeout = {"call_timeout": CALL_SECONDS}
    server = program.add_node(
        lp.CourierNode(PolicyServer, run, learner, courier_client_kwargs=timeout), label="policy_server"
    )
    program.add_node(lp.PyClassNode(Player, run, server, coordinator), label="player")


def main() -> None:
    settings = flags.FLAGS(sys.argv, known_only=True)[1:]  # What is no option of Launchpad is one of the run.
    run = make_run(parse_experiment(None, read_recipe("impala-cartpole"), settings))
    program = make_program(run)
    add_nodes(program, run)
    lp.launch(program)


if __name__ == "__main__":
    main()
