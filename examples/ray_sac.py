"""SAC in a custom training loop on Ray: rollouts and learners are tasks, weights and replay are actors.

Run from the root of the repository, with the extra `ray` installed:

    python examples/ray_sac.py --num-workers 8 --num-learners 1

The exit code is 0 if the policy reaches `--goal`, and 1 if it does not within `--max-steps`.
"""

import argparse
import os
import statistics
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf  # isort: skip  It must come before Ray.

import ray

from callboard.agents.policies.acting import evaluate
from callboard.agents.sac import Sac
from callboard.agents.variables.weights import WeightClient
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.launchers.ray.own_loop import Servers, rollout, start_servers, train
from callboard.launch.nodes.acting.acting_environments import make_environments
from callboard.launch.nodes.acting.compiled_policies import compile_policy
from callboard.settings.nested_settings import from_values

EPISODES = 100


class Evaluator:
    """Evaluates the newest weights without exploration."""

    def __init__(self, servers: Servers):
        experiment, layout = servers.run.experiment, servers.run.layout
        networks = experiment.agent.make_networks(layout)
        self._environment = make_environments(experiment, "evaluator", 0, EPISODES)
        self._policy = compile_policy(experiment, layout, networks, "evaluate", 0, EPISODES)
        self._weights = WeightClient(servers.weights.client(timeout=30), self._policy.policy.variables)

    def mean_return(self) -> float:
        self._weights.fetch()
        self._weights.apply()
        episodes = evaluate(self._environment, self._policy, EPISODES, stopped=lambda: False)
        return statistics.fmean(episode.episode_return for episode in episodes)


def learn(experiment: Experiment, evaluate_every: int, goal: float) -> bool:
    """Trains until an evaluation reaches the goal; returns False if none does."""
    servers = start_servers(experiment)
    evaluator = Evaluator(servers)
    tasks = [train.remote(servers), *(rollout.remote(servers, index) for index in range(experiment.actors))]
    next_steps, score, stopping = evaluate_every, -float("inf"), False
    while score < goal and not stopping:
        ray.get(ray.wait(tasks, timeout=0.2)[0])  # Raises the error of a task that has failed.
        status = servers.status()
        steps, stopping = status["environment_steps"], status["stopping"]
        if steps >= next_steps or stopping:
            next_steps = (steps // evaluate_every + 1) * evaluate_every
            score = evaluator.mean_return()
            print(f"{steps:,} environment steps: mean return {score:.1f} in {EPISODES} episodes", flush=True)
    servers.stop()
    ray.get(tasks, timeout=300)
    servers.close()
    return score >= goal


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--num-workers", type=int, default=8, help="rollouts, each with an environment of its own")
    parser.add_argument("--num-learners", type=int, default=1, help="learners, which share each batch")
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--goal", type=float, default=-170.0, help="mean return at which training ends")
    parser.add_argument("--max-steps", type=int, default=30_000, help="environment steps after which it ends anyway")
    parser.add_argument("--evaluate-every", type=int, default=2_500, help="environment steps")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--run-dir", help="directory of metrics and checkpoints; the default is a new one under runs/")
    parser.add_argument("--ray-address", help="of a Ray cluster, or auto; without it one is started here")
    settings = parser.parse_args()
    agent = from_values(
        Sac,
        {
            "normalize_rewards": False,
            "temperature": 1.0,
            "replay.min_size": 1000,
            "replay.size": 100_000,
            **{f"{name}_optimizer.learning_rate": 1e-3 for name in ("actor", "critic", "temperature")},
            "network.hidden_sizes": (64, 64),
        },
    )
    experiment = Experiment(
        agent=agent,
        env=settings.env,
        seed=settings.seed,
        actors=settings.num_workers,
        envs_per_actor=1,
        learners=settings.num_learners,
        max_steps=settings.max_steps,
        run_dir=settings.run_dir,
    )
    tf.config.threading.set_intra_op_parallelism_threads(1)
    # One CPU slot for each task and for replay, regardless of the machine's cores; a cluster has its own number.
    slots = settings.num_workers + settings.num_learners + 1
    try:
        ray.init(address=settings.ray_address or "local", num_cpus=None if settings.ray_address else slots)
        return 0 if learn(experiment, settings.evaluate_every, settings.goal) else 1
    except CallboardError as error:
        print(f"ray_sac: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    finally:
        ray.shutdown()


if __name__ == "__main__":
    sys.exit(main())
