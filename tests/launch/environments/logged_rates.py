"""IMPALA whose learners log the learning rate of each of their steps."""

import dataclasses
from pathlib import Path

import tensorflow as tf

from callboard.agents.impala import Impala


@dataclasses.dataclass(frozen=True)
class LoggedRates(Impala):
    """Appends lines `STEP RATE` to a file of each learner in the directory `rate_logs`."""

    rate_logs: str = ""

    def make_learner(self, networks, strategy, layout):
        learner = super().make_learner(networks, strategy, layout)
        rank, step = strategy.cluster_resolver.task_id, learner.step
        log = Path(self.rate_logs) / f"learner-{rank}.txt"

        def logged(iterator):
            update = step(iterator)
            (optimizer,) = learner.optimizers
            rate = float(tf.convert_to_tensor(optimizer.learning_rate))
            with log.open("a") as file:
                file.write(f"{int(learner.steps.numpy())} {rate!r}\n")
            return update

        learner.step = logged
        return learner
