"""An agent, a torso and callbacks with mistakes, each where it is wanted."""

import dataclasses

import gymnasium
import tensorflow as tf

from callboard.agents.impala import Impala
from callboard.callbacks import Callbacks

MESSAGE = "a mistake of one's own"


def mistake():
    raise AttributeError(MESSAGE)


@dataclasses.dataclass(frozen=True)
class Mistaken(Impala):
    """IMPALA with a mistake.

    Attributes:
      mistake: where it is.
    """

    mistake: str = ""

    def policy_terms(self, log_prob_t, log_rho_t, targets, valid_t):
        if self.mistake == "loss":
            mistake()
        if self.mistake == "computed loss":
            tf.debugging.assert_less(tf.size(valid_t), 0, message=MESSAGE)
        return super().policy_terms(log_prob_t, log_rho_t, targets, valid_t)

    def make_policy(self, networks, mode):
        policy = super().make_policy(networks, mode)
        if self.mistake == "policy" and mode == "train":
            policy.initial_state = lambda batch_size: mistake()
        return policy

    def make_replay(self, layout):
        replay = super().make_replay(layout)
        if self.mistake == "replay":
            object.__setattr__(replay, "writer", lambda *arguments, **options: mistake())
        return replay


def torso(spec):
    def features(observation):
        # The networks are built without mistakes: with two timesteps.
        return mistake() if (observation.shape[0] or 3) > 2 else observation

    return tf.keras.layers.Lambda(features)


class AtStep(gymnasium.Wrapper):
    """CartPole with a mistake in a step of an evaluation's environments, or of all others.

    Args:
      at: number of the step.
      in_evaluation: whether it is an evaluation's.
      actor: number of the actor, None in evaluations.
    """

    def __init__(self, at, in_evaluation=False, actor=None):
        super().__init__(gymnasium.make("CartPole-v1"))
        self._left = at if (actor is None) == in_evaluation else 10**9

    def step(self, action):
        self._left -= 1
        return super().step(action) if self._left else mistake()


class AtStart(Callbacks):
    def on_run_start(self, run):
        mistake()


class AtEvaluation(Callbacks):
    def on_evaluation(self, run, evaluation):
        mistake()


class AtResult(Callbacks):
    def on_result(self, run, result):
        mistake()
