"""Hyperparameters of Ape-X DQN."""

import dataclasses
from typing import Literal

from ...networks.network_settings import QNetworkSettings
from ...settings.setting_types import FiniteFloat, PositiveFloat, PositiveInt, UnitInterval
from .bonus_settings import RewardBonusSettings
from .optimizer_settings import OptimizerSettings
from .shared_settings import ExplorationSettings, ObservationSettings, PrioritizedReplaySettings, RewardSettings

Distribution = Literal["none", "categorical", "quantile", "implicit"]
"""How the value of an action is distributed: a value alone, C51's atoms, QR-DQN's quantiles, or IQN's sampled ones."""


@dataclasses.dataclass(frozen=True)
class ApexSettings(ObservationSettings, RewardSettings, ExplorationSettings, RewardBonusSettings):
    """Hyperparameters of Ape-X DQN.  Defaults are for one machine; the recipe `apex-atari` has the paper's for Atari.

    With the paper's settings, which are for 360 actors and billions of frames, nothing is learned within a million
    steps.  Here batches are smaller, each transition is learned from more often, the optimizer is Adam with a larger
    learning rate, and the target network is updated more often.  Returns, priorities, discount and exploration are
    the paper's.  docs/defaults.md compares all defaults with the papers'.

    Attributes:
      n_step: transitions in a window (n).
      batch_size: windows in a learner step, over all replicas.
      accumulate: batches in a learner step, whose gradients are averaged before the optimizer applies them, as if they
        were one larger batch that did not fit into memory.
      updates_per_call: learner steps per call of the compiled update, one batch each (see docs/learners.md).  None for
        up to 16 where observations are small, not more than are due after two timesteps of all environments.
      discount: γ.
      normalize_rewards: see `RewardSettings`; not in the paper.
      target_update_period: learner steps between updates of the target network.
      reward_clip: rewards are clipped to [-reward_clip, reward_clip], or to a range such as [-1, 5]; None disables
        clipping.  The paper clips Atari rewards to [-1, 1].
      huber: absolute TD error beyond which the loss is linear; None for a squared loss everywhere, as in the paper.
        With quantile and implicit, κ; None for a loss without smoothing.
      distribution: none, categorical (C51, Bellemare et al. 2017), quantile (QR-DQN, Dabney et al. 2018) or implicit
        (IQN, Dabney et al. 2018).  Priorities are the TD errors of the distributions' means; Rainbow's are the loss.
      atoms: values in the support of categorical (C51: 51), quantiles (QR-DQN: 200), or fractions that implicit samples
        (IQN: 64).
      value_min: lowest value of the support of categorical; discounted returns below it are not distinguished.  None
        follows the returns seen, see `value_range.ValueRange`.
      value_max: highest value of the support of categorical; None likewise.
      munchausen: α of Munchausen DQN (Vieillard et al. 2020), 0.9 in the paper: the weight of the log-policy of the
        action taken, which is added to the first reward of a window.  Targets are then soft, without double Q-learning;
        0 for neither.
      munchausen_temperature: τ of the policy, the softmax of the target network's values divided by τ.
      munchausen_clip: τ times the log-policy is clipped to [-munchausen_clip, 0].
      noisy: whether the layers of the head are noisy (Fortunato et al. 2018), with new noise at every timestep and in
        every update.  Actors then explore by the noise alone, without `epsilon`; evaluation is without noise.
      noisy_sigma: initial scale of the noise (σ_0).
      frame_stack: number of most recent images that the network sees; replay stores each image once.  4 in the paper.
      optimizer: see `OptimizerSettings`; RMSProp is not centered, unlike the paper's.  The loss is a mean over the
        batch.
      replay: see `PrioritizedReplaySettings`; its items are windows.  In the paper actors and learner run freely.
      network: see `QNetworkSettings`.
    """

    n_step: PositiveInt = 3
    batch_size: PositiveInt = 128
    accumulate: PositiveInt = 1
    updates_per_call: PositiveInt | None = None
    discount: UnitInterval = 0.99
    normalize_rewards: bool = True
    target_update_period: PositiveInt = 200
    huber: PositiveFloat | None = 1.0
    distribution: Distribution = "none"
    atoms: PositiveInt = 51
    value_min: FiniteFloat | None = None
    value_max: FiniteFloat | None = None
    munchausen: UnitInterval = 0.0
    munchausen_temperature: PositiveFloat = 0.03
    munchausen_clip: PositiveFloat = 1.0
    noisy: bool = False
    noisy_sigma: PositiveFloat = 0.5
    optimizer: OptimizerSettings = OptimizerSettings(
        learning_rate=5e-4, epsilon=1e-5, rmsprop_decay=0.95, max_gradient_norm=40.0
    )
    replay: PrioritizedReplaySettings = PrioritizedReplaySettings(
        size=200_000, min_size=5000, samples_per_insert=32.0, priority_exponent=0.6, importance_exponent=0.4
    )
    network: QNetworkSettings = QNetworkSettings(hidden_sizes=(256, 256), activation="relu", stream_size=128)
