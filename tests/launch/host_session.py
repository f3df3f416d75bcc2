"""A session on the first of several hosts; arguments: the cluster file, and the run directory."""

import pathlib
import sys

from callboard.launch.experiments.settings import parse_experiment, read_recipe
from callboard.launch.launchers.hosts.launcher import HostsLauncher
from callboard.launch.session import Session

if __name__ == "__main__":
    cluster, run_dir = sys.argv[1:]
    experiment = parse_experiment(None, read_recipe("impala-cartpole"), [f"--run-dir={run_dir}"])
    with Session(experiment, HostsLauncher(pathlib.Path(cluster), "a")) as session:
        print("paused at", session.result.environment_steps)
        print("trained", session.train(steps=5000).environment_steps)
        session.set_weights(session.get_weights())
        session.update(learning_rate=1e-4)
        print("saved", session.save().is_dir())
        slots = session.for_each_environment(lambda environment: environment.unwrapped.gravity)
        print("environments", len(slots))
        print("trained", session.train(learner_steps=5).over)
