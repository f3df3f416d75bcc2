"""An agent, a torso and callbacks with mistakes, each where it is wanted."""

import dataclasses

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
        # The networks are built without mistakes: with one timestep.
        return mistake() if (observation.shape[0] or 2) > 1 else observation

    return tf.keras.layers.Lambda(features)


class AtStart(Callbacks):
    def on_run_start(self, run):
        mistake()


class AtEvaluation(Callbacks):
    def on_evaluation(self, run, evaluation):
        mistake()


class AtResult(Callbacks):
    def on_result(self, run, result):
        mistake()
