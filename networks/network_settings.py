"""Settings of networks that several agents share."""

import dataclasses
from typing import Literal

from ..setting_types import NonNegativeInt, PositiveInt


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """Settings of a network of any kind.

    Attributes:
      torso: auto, mlp, nature, impala, resnet8 to resnet56, or package.module:factory, which takes the spec and returns
        a Keras model.  auto is impala if there are images, else mlp.
      hidden_sizes: layers of the MLP for vector observations.
      activation: activation of the MLPs.
    """

    torso: str = "auto"
    hidden_sizes: tuple[PositiveInt, ...]
    activation: Literal["relu", "tanh", "elu", "gelu", "swish"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActorCriticSettings(NetworkSettings):
    """Settings of an actor and its critics.

    Attributes:
      hidden_sizes: layers of the policy on the torso's features, and of each critic on the features and the action.  A
        vector is its own features.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyValueNetworkSettings(NetworkSettings):
    """Settings of a network that outputs a policy and a value.

    Attributes:
      core: none, or lstm for a network with a memory.
      lstm_size: units of the LSTM core.
      head_sizes: separate layers of policy and value after torso and core.
      normalize_observations: whether observations are normalized to zero mean and unit variance, by running statistics
        of the observations in the learner's batches.  Byte images are not normalized.
    """

    core: Literal["none", "lstm"] = "none"
    lstm_size: PositiveInt
    head_sizes: tuple[PositiveInt, ...]
    normalize_observations: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class QNetworkSettings(NetworkSettings):
    """Settings of a network that outputs action values.

    Attributes:
      dueling: whether value and advantages have separate streams.
      stream_size: units of the hidden layer in each stream; 0 for no hidden layer, where dueling has no effect.
    """

    dueling: bool = True
    stream_size: NonNegativeInt


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentQNetworkSettings(QNetworkSettings):
    """Settings of a network with a memory that outputs action values.

    Attributes:
      core: lstm, or none for a network without memory.
      lstm_size: units of the LSTM core.
      previous_inputs: whether the core also sees the previous action and the previous reward, which is not clipped.
    """

    core: Literal["none", "lstm"] = "lstm"
    lstm_size: PositiveInt
    previous_inputs: bool = True
