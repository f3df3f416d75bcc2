"""Settings of networks that several agents share."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from annotated_types import Interval

from ..errors import CallboardError, unknown
from ..settings.setting_types import LayerSize, NonNegativeInt, PositiveInt, UnitInterval, converted
from ..specs import EnvironmentSpec, without_part

CORES = ("none", "lstm", "gru", "gtrxl")
"""Names of cores; any other is `package.module:factory`."""

Mixer = Literal["qmix", "vdn"]
"""How the values of a team's members make the team's: by a monotonic network, or as their sum."""

Activation = Literal["relu", "tanh", "elu", "gelu", "leaky_relu", "selu", "sigmoid", "softplus", "swish"]

Initializer = Literal[
    "glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "lecun_normal", "lecun_uniform", "orthogonal"
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """Settings of a network of any kind.

    Attributes:
      torso: auto, mlp, conv, nature, impala, resnet8 to resnet56, or package.module:factory, which takes the spec and
        torso_options and returns a Keras model.  auto is conv if there are images and filters, impala if there are
        images, else mlp.
      torso_options: options of a torso package.module:factory by name.
      hidden_sizes: layers of the MLP for vector observations.
      torsos: torsos of parts of a nested observation, such as {camera: nature, robot/arm: mlp}; torso is for the rest.
      activation: activation of the MLPs.
      layer_norm: whether the inputs of the activations of all MLPs, and of the layer after the convolutions of conv,
        are normalized (Ba et al. 2016).
      filters: convolutions of the torso conv, such as [[32, 8, 4], [64, 4, 2]]; channels, kernel size and stride.
      image_features: units of the layer after the convolutions; None for 512 of conv and nature, and 256 of impala.
      precision: what torsos by name compute in: float32, bfloat16, or bfloat16_on_gpu, which is float32 in processes
        without a GPU.  bfloat16 is float32 on CPUs without AVX-512, see `precision`.  Weights, features, cores and
        heads are float32.
      image_activation: activation of the torsos for images; None for that of the MLPs in conv, and relu in the others.
      image_initializer: how the weights of the torsos for images begin, but for those of a ResNet; None for the
        torso's own way.
    """

    torso: str = "auto"
    torso_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    torsos: Mapping[str, str] = dataclasses.field(default_factory=dict)
    hidden_sizes: tuple[LayerSize, ...]
    activation: Activation
    layer_norm: bool = False
    filters: tuple[tuple[PositiveInt, PositiveInt, PositiveInt], ...] = ()
    image_features: PositiveInt | None = None
    precision: Literal["float32", "bfloat16", "bfloat16_on_gpu"] = "float32"
    image_activation: Activation | None = None
    image_initializer: Initializer | None = None

    @property
    def batch_normalized_torso(self) -> str:
        """The first torso by name with batch normalization, whose statistics training changes; or ""."""
        names = (self.torso, *self.torsos.values())
        return next((name for name in names if ":" not in name and name.startswith("resnet")), "")

    @property
    def problem(self) -> str:
        """The fault in the combination of the fields; empty if there is none."""
        names = (self.torso, *self.torsos.values())
        if "conv" in names and not self.filters:
            return "torso conv needs filters, such as [[32, 8, 4], [64, 4, 2], [64, 3, 1]]"
        if self.torso_options and ":" not in self.torso:
            return f"torso_options are for a torso package.module:factory, not for {self.torso}"
        if self.precision != "float32" and ":" in self.torso:
            return f"precision is for torsos by name: leave it out, and let {self.torso} set the dtype of its layers"
        if self.filters and not {"auto", "conv"}.intersection(names):
            return f"filters are those of torso conv, not of {', '.join(names)}: leave one of them out"
        if self.image_initializer is not None and self.batch_normalized_torso:
            return f"image_initializer is not for {self.batch_normalized_torso}, which has its own: leave it out"
        for head in ("head", "critic_head"):
            if getattr(self, f"{head}_options", None) and getattr(self, head, None) is None:
                return f"{head}_options are for a {head} package.module:factory, not for the default"
        return getattr(self, "core_problem", "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActorCriticSettings(NetworkSettings):
    """Settings of an actor and its critics.

    Attributes:
      hidden_sizes: layers of the policy on the torso's features, and of each critic on the features and the action.  A
        vector is its own features.
      normalize_observations: whether observations are normalized to zero mean and unit variance, by running statistics
        of the observations in the learner's batches.  Byte images are not normalized.
      head: package.module:factory of the policy's head, which takes the spec and head_options and returns a module from
        features to the same outputs; None for the default.
      head_options: options of a head of your own by name.
      critic_head: package.module:factory of the head of each critic, which takes the spec and critic_head_options and
        returns a module from features and action to as many outputs; None for the default.
      critic_head_options: options of a critic_head of your own by name.
      block: plain; or simba (Lee et al. 2024) for a linear layer, a residual block of as many units for each of the
        equal hidden_sizes, and a layer normalization.
    """

    normalize_observations: bool = True
    head: str | None = None
    head_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    critic_head: str | None = None
    critic_head_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    block: Literal["plain", "simba"] = "plain"

    @property
    def problem(self) -> str:
        """The fault in the combination of the fields; empty if there is none."""
        if self.block == "simba":
            if self.layer_norm:
                return "block simba has layer normalization of its own: set layer_norm to false"
            if not self.hidden_sizes or len(set(self.hidden_sizes)) > 1:
                return f"block simba needs hidden_sizes that are equal, such as [128], not {list(self.hidden_sizes)}"
        return super().problem


@dataclasses.dataclass(frozen=True, kw_only=True)
class GTrXLOptions:
    """The core_options of the core gtrxl.

    Attributes:
      layers: number of layers.
      heads: attention heads of each layer.
      memory: timesteps before that are attended to; the recurrent state holds layers * memory * lstm_size numbers.
      mlp_size: hidden units of each layer's MLP; None for 4 * lstm_size.
    """

    layers: PositiveInt = 2
    heads: PositiveInt = 2
    memory: PositiveInt = 32
    mlp_size: PositiveInt | None = None

    def check_size(self, size: int) -> None:
        """Raises `CallboardError` unless a number of features can be divided among the heads."""
        if size % self.heads:
            raise CallboardError(
                f"core gtrxl has {self.heads} heads of equal size: make lstm_size a multiple of that, not {size}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoreSettings:
    """Settings of a network's core.

    Attributes:
      core: none; lstm, gru or gtrxl (a gated transformer) for a network with a memory; or package.module:factory, which
        takes core_options and returns a `callboard.networks.recurrent.Core`.
      lstm_size: units of the LSTM or GRU, or features of the GTrXL.
      core_options: options of the core by name; of gtrxl layers, heads, memory and mlp_size.
    """

    core: str = "none"
    lstm_size: LayerSize
    core_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def core_problem(self) -> str:
        """The fault in the core's settings; empty if there is none."""
        if ":" in self.core:
            return ""
        if self.core not in CORES:
            known = f"choose from {', '.join(CORES)}, or write package.module:factory"
            return str(unknown("core", self.core, CORES, known))
        if self.core == "gtrxl":
            try:
                converted("core_options", self.core_options, GTrXLOptions).check_size(self.lstm_size)
            except CallboardError as error:
                return str(error)
        elif self.core_options:
            return f"core_options are for core gtrxl, or for a core package.module:factory, not for {self.core}"
        return ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadSettings:
    """Settings of a network's head.

    Attributes:
      head: package.module:factory, which takes the spec and head_options and returns a module from features to the same
        outputs; None for the default.
      head_options: options of a head of your own by name.
      heads_by: part of the observation, by its key, that selects one of several heads on the same torso and core, such
        as `agent_index`, with which agents that share a policy have a head each.  None for one head.
    """

    head: str | None = None
    head_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    heads_by: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PopArtSettings:
    """Settings of PopArt, with which the value learns normalized returns (van Hasselt et al. 2016, Hessel et al. 2018).

    Attributes:
      enabled: whether the value is learned normalized.  Advantages are then divided by the scale of returns too.
      rate: weight of a batch in the running mean and scale of returns, β; the first batches weigh more.
      task: part of the observation, by its key, that is the index of the task, a discrete choice; each task then has a
        mean, a scale and an output of its own.  None for one task.
    """

    enabled: bool = False
    rate: UnitInterval = 3e-4
    task: str | None = None

    @property
    def problem(self) -> str:
        """The fault in the combination of the fields; empty if there is none."""
        if self.task is not None and not self.enabled:
            return "popart.task is for PopArt: set popart.enabled to true, or leave it out"
        return "popart.rate must be above 0" if self.rate == 0 else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyValueNetworkSettings(HeadSettings, CoreSettings, NetworkSettings):
    """Settings of a network that outputs a policy and a value.

    Attributes:
      head_sizes: separate layers of policy and value after torso and core.
      autoregressive: whether each part of an action of several parts is chosen by a network that sees the parts before
        it; otherwise they are independent of each other, given the observation.
      shared: whether policy and value share torso and core; otherwise each has its own.
      previous_inputs: whether the core, or the head without one, also sees the previous action and the previous reward,
        r as sign(r) log(1 + |r|).
      normalize_observations: whether observations are normalized to zero mean and unit variance, by running statistics
        of the observations in the learner's batches.  Byte images are not normalized.
      critic_state: part of the observation, by its key, that the value sees and the policy does not, such as `state` of
        environments with several agents (MAPPO, Yu et al. 2022); a policy outside of training acts without it.  Needs
        `shared` false.  None for no such part.
      popart: see `PopArtSettings`.
    """

    head_sizes: tuple[LayerSize, ...]
    autoregressive: bool = False
    shared: bool = True
    previous_inputs: bool = False
    normalize_observations: bool = True
    critic_state: str | None = None
    popart: PopArtSettings = PopArtSettings()

    @property
    def problem(self) -> str:
        """The fault in the combination of the fields; empty if there is none."""
        if self.shared and self.critic_state is not None:
            return f"the policy must not see critic_state {self.critic_state!r}, so it needs shared: false"
        if self.popart.enabled and self.head is not None:
            return "a head of your own outputs the value, which popart.enabled replaces: leave one of them out"
        if self.popart.enabled and self.heads_by is not None:
            return "popart.enabled has one value head, and heads_by several: leave one of them out"
        if self.autoregressive and self.heads_by is not None:
            return "an autoregressive policy has one head, and heads_by several: leave one of them out"
        if self.heads_by is not None and self.heads_by == self.critic_state:
            return f"the policy does not see critic_state {self.critic_state!r}: set heads_by to another part"
        if not self.shared and self.head is not None:
            return "a head of your own outputs policy and value together and needs shared: true"
        return super().problem

    def acting_spec(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Returns the spec of what the policy sees: without the part of the observation that only the value sees."""
        return spec if self.critic_state is None else without_part(spec, self.critic_state)


@dataclasses.dataclass(frozen=True, kw_only=True)
class QNetworkSettings(HeadSettings, NetworkSettings):
    """Settings of a network that outputs action values.

    Attributes:
      dueling: whether value and advantages have separate streams.
      stream_size: units of the hidden layer in each stream; 0 for no hidden layer, where dueling has no effect.
      normalize_observations: whether observations are normalized to zero mean and unit variance, by running statistics
        of the observations in the learner's batches.  Byte images are not normalized.
    """

    dueling: bool = True
    stream_size: NonNegativeInt
    normalize_observations: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentQNetworkSettings(CoreSettings, QNetworkSettings):
    """Settings of a network with a memory that outputs action values.

    Attributes:
      previous_inputs: whether the core also sees the previous action and the previous reward r, as
        sign(r) log(1 + |r|).
    """

    core: str = "lstm"
    previous_inputs: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class TeamNetworkSettings(CoreSettings, QNetworkSettings):
    """Settings of the networks of a team's members, which output the values of their actions.

    Attributes:
      shared: whether all members have one network, which also sees the member's index; otherwise each has its own.
      previous_actions: whether a member's network also sees its previous action.
    """

    core: str = "gru"
    dueling: bool = False
    normalize_observations: bool = False
    shared: bool = True
    previous_actions: bool = True

    @property
    def problem(self) -> str:
        """The fault in the combination of the fields; empty if there is none."""
        if self.heads_by is not None and not self.shared:
            return "with shared: false each member has a network and a head of its own: leave heads_by out"
        return super().problem

    @property
    def of_member(self) -> dict[str, Any]:
        """Settings of one member's network."""
        return {name: value for name, value in vars(self).items() if name not in ("shared", "previous_actions")}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CriticSettings:
    """Settings of the critics.  Those of an ensemble are computed together, in one matrix product for a layer of all.

    Attributes:
      number: critics.
      minimum_of: critics of whose values a target takes the lowest, sampled for each update (REDQ, Chen et al. 2021);
        None for all.  The policy learns from the mean of all critics if this is less than `number`, if there is
        dropout, or if there are quantiles; else SAC's learns from the lowest value, and TD3's from the first critic.
      quantiles: quantiles of the return that each critic outputs, whose mean is its value (TQC, Kuznetsov et al.
        2020); None for a value alone.
      dropped: highest quantiles that targets leave out, for each critic, of all critics' quantiles together.
      dropout: share of the units of each hidden layer that is zero, in targets too (DroQ, Hiraoka et al. 2022).
      layer_norm: whether the critics are normalized as by `network.layer_norm`, which also holds for the policy.
      hidden_sizes: hidden layers of each critic; None for those of `network`.
    """

    number: PositiveInt = 2
    minimum_of: PositiveInt | None = None
    quantiles: PositiveInt | None = None
    dropped: NonNegativeInt = 0
    dropout: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    layer_norm: bool = False
    hidden_sizes: tuple[LayerSize, ...] | None = None

    @property
    def averaged(self) -> bool:
        """Whether the policy learns from the mean of all critics."""
        return self.quantiles is not None or self.dropout > 0 or self.minimum_of not in (None, self.number)

    @property
    def problem(self) -> str:
        """The fault in the combination of the fields; empty if there is none."""
        if self.minimum_of is not None and self.minimum_of > self.number:
            return f"minimum_of is {self.minimum_of}, and there are {self.number} critics: make number at least that"
        if self.quantiles is None:
            return "dropped is a number of quantiles: set quantiles, or leave it out" if self.dropped else ""
        if self.minimum_of is not None:
            return "targets take the quantiles of all critics: leave minimum_of out, and set dropped"
        if self.dropped >= self.quantiles:
            return f"dropped must be less than the {self.quantiles} quantiles of a critic, not {self.dropped}"
        return ""
