"""Evaluations, and pictures of episodes."""

import dataclasses
from typing import Literal

from .quantities import EnvironmentCount, Seconds, StepCount

_MOST_ENVS = 20
"""Most environments of an evaluation by default."""


@dataclasses.dataclass(frozen=True)
class EvaluationPart:
    """Evaluations, and pictures of episodes.

    Attributes:
      evaluator: whether an evaluator node runs during training, and evaluates the final policy once a limit such as
        `max_steps` is reached.
      evaluate_every: environment steps between two evaluations.
      evaluation_episodes: number of episodes per evaluation, the same in every environment of the evaluator.
      evaluation_envs: number of environments that the evaluator steps as a batch; a divisor of evaluation_episodes.
        None for the largest up to 20.
      evaluation_mode: `greedy` takes the policy's best actions, `sampled` samples them from the policy, as actors do.
        Agents that learn action values have `evaluation_epsilon` instead.
      video_every: number of evaluations after each of which an episode is recorded, in `videos/` and in TensorBoard;
        None for no videos.
      training_video_every: number of episodes of the first environment of which one is recorded while it trains, in
        `videos/` and in TensorBoard; None for no such videos.
      render: `human` shows the first environment in a window while it trains, on the machine of the first actor; None
        for no window.
      evaluation_timeout: seconds after which an evaluation is abandoned.
    """

    evaluator: bool = True
    evaluate_every: StepCount = 20_000
    evaluation_episodes: EnvironmentCount = 100
    evaluation_envs: EnvironmentCount | None = None
    evaluation_mode: Literal["greedy", "sampled"] = "greedy"
    video_every: EnvironmentCount | None = None
    training_video_every: EnvironmentCount | None = None
    render: Literal["human"] | None = None
    evaluation_timeout: Seconds = 1800.0

    def evaluation_batch(self, episodes: int | None = None) -> int:
        """Returns the number of environments that play whole episodes at a time, the same number each.

        Args:
          episodes: number of episodes; None for those of an evaluation during the run.
        """
        if episodes is None:
            if self.evaluation_envs is not None:
                return self.evaluation_envs
            episodes = self.evaluation_episodes
        most = min(episodes, self.evaluation_envs or _MOST_ENVS)
        return max(count for count in range(1, most + 1) if episodes % count == 0)
