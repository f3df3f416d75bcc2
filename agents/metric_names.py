"""The metrics that learners of the built-in agents report, with units and meanings.

They are means over the valid transitions of the global batch, unless the meaning says otherwise.

Learners of several agents use the same name for the same quantity.  A run writes them with the prefix `learner/`.
"""

from typing import NamedTuple


class Metric(NamedTuple):
    """A metric of a run."""

    name: str
    meaning: str
    unit: str = ""
    agents: tuple[str, ...] = ()
    """The agents that have it; empty for all, or for metrics of the run itself."""
    bookkeeping: bool = False
    """Whether it only serves to read `metrics.jsonl`: TensorBoard shows no curve of it."""


_ONE_LOSS = ("impala", "appo", "a2c", "a3c", "ppo", "pqn", "apex", "r2d2", "qmix", "vdn", "bc", "awr", "iql")
_ACTOR_CRITIC = ("sac", "drq", "cql", "td3", "td3_bc", "d4pg", "dmpo")
_SOFT = ("sac", "drq", "cql")

LEARNER_METRICS = (
    Metric("policy_lag", "mean learner steps between the weights that acted and those that learn", "steps"),
    Metric(
        "loss",
        "total loss of a learner step, as it is minimized: divided by all transitions of the batch, valid or not "
        "(IMPALA, APPO: the sum; R2D2, QMIX, VDN: the sum over time)",
        agents=_ONE_LOSS,
    ),
    Metric("gradient_norm", "global norm of the gradient, before clipping", agents=_ONE_LOSS),
    Metric(
        "policy_loss",
        "policy-gradient loss (APPO, PPO: the clipped one; AWR, IQL: weighted imitation)",
        agents=("impala", "appo", "a2c", "a3c", "ppo", "awr", "iql"),
    ),
    Metric("baseline_loss", "squared error of the baseline to its V-trace targets", agents=("impala", "appo")),
    Metric(
        "value_loss",
        "squared error of the values to the returns (IQL: to an expectile of the critics' values)",
        agents=("a2c", "a3c", "ppo", "awr", "iql"),
    ),
    Metric(
        "critic_loss",
        "squared errors of all critics (quantiles: Huber loss; D4PG, DMPO: cross-entropy; CQL: with its penalty)",
        agents=(*_ACTOR_CRITIC, "iql"),
    ),
    Metric(
        "actor_loss",
        "loss of the policy (SAC: regularized by its entropy)",
        agents=_ACTOR_CRITIC,
    ),
    Metric("temperature_loss", "loss of the weight of the entropy", agents=_SOFT),
    Metric(
        "critic_gradient_norm",
        "global norm of the gradient of the critics' loss",
        agents=_ACTOR_CRITIC,
    ),
    Metric(
        "actor_gradient_norm",
        "global norm of the gradient of the policy's loss",
        agents=_ACTOR_CRITIC,
    ),
    Metric("temperature_gradient_norm", "absolute gradient of the temperature's loss", agents=_SOFT),
    Metric(
        "temperature",
        "weight of the entropy, which is learned (DMPO: of the weights of actions by value)",
        agents=(*_SOFT, "dmpo"),
    ),
    Metric("dual_loss", "loss of temperatures and multipliers", agents=("dmpo",)),
    Metric("dual_gradient_norm", "global norm of the gradient of that loss", agents=("dmpo",)),
    Metric("kl_mean", "KL divergence of the policy's mean from the target's, by component", "nats", ("dmpo",)),
    Metric("kl_stddev", "the same of its standard deviation", "nats", ("dmpo",)),
    Metric(
        "entropy",
        "mean entropy of the policy (SAC: estimated from sampled actions)",
        "nats",
        ("impala", "appo", "a2c", "a3c", "ppo", *_SOFT, "dmpo", "bc", "awr", "iql"),
    ),
    Metric(
        "value",
        "mean value estimate (SAC: the lowest of all critics, or their mean; TD3: the first one, or the mean; "
        "PQN, Ape-X, R2D2: of the best action; "
        "QMIX, VDN: of the team's action)",
        agents=(*(agent for agent in _ONE_LOSS if agent != "bc"), *_ACTOR_CRITIC),
    ),
    Metric("log_prob", "mean log-probability of the actions of the batch", "nats", ("bc", "awr", "iql")),
    Metric("conservative_gap", "how far the values of all actions lie above the recorded ones", agents=("cql",)),
    Metric("support_ends", "probability of targets at both ends of the support", "fraction", ("apex", "d4pg", "dmpo")),
    Metric("td_error", "mean absolute TD error", agents=("pqn", "apex", "r2d2", "qmix", "vdn")),
    Metric(
        "importance_weight",
        "mean importance weight (IMPALA, APPO: of the policies, not clipped; Ape-X, R2D2: of sampling by priority)",
        agents=("impala", "appo", "apex", "r2d2"),
    ),
    Metric(
        "valid_fraction",
        "valid transitions of the batch",
        "fraction",
        ("impala", "appo", "a2c", "a3c", "ppo", "pqn", "r2d2", "qmix", "vdn", "bc", "awr"),
    ),
    Metric(
        "approximate_kl", "approximate KL divergence of the policy from the one that acted", "nats", ("appo", "ppo")
    ),
    Metric(
        "clip_fraction", "transitions whose probability ratio is beyond the clipping range", "fraction", ("appo", "ppo")
    ),
    Metric("clip_range", "clipping range of the probability ratio", agents=("ppo",)),
    Metric("learning_rate", "learning rate of the step, with its decay or schedule", agents=("ppo", "pqn")),
    Metric(
        "epochs", "passes over the batch; fewer than the setting where `target_kl` was exceeded", agents=("ppo", "pqn")
    ),
    Metric(
        "gradient_staleness",
        "learner steps between the weights that a gradient was computed with and those that it is applied to",
        "steps",
        ("a3c",),
    ),
    Metric(
        "dropped_rollouts",
        "parts of rollouts dropped since the last step because their weights were too old",
        agents=("a2c", "ppo", "pqn"),
    ),
)

_VALUED_BONUS = ("impala", "appo", "a2c", "ppo")
_BONUS = (*_VALUED_BONUS, "apex", "r2d2")

BONUS_METRICS = (
    Metric("bonus", "mean exploration bonus, normalized and without its weight", agents=_BONUS),
    Metric(
        "bonus_loss",
        "loss of the bonus's networks: of their predictions, and of the values of bonuses where there are any",
        agents=_BONUS,
    ),
    Metric("bonus_gradient_norm", "global norm of the gradient of that loss", agents=_BONUS),
    Metric("bonus_value", "mean value of bonuses", agents=_VALUED_BONUS),
)
"""Further metrics of an agent with an exploration bonus."""

SCHEDULE_METRICS = (
    Metric("scheduled_learning_rate", "learning rate, where it is a schedule", agents=_ONE_LOSS),
    Metric(
        "scheduled_actor_learning_rate",
        "learning rate of the policy",
        agents=_ACTOR_CRITIC,
    ),
    Metric(
        "scheduled_critic_learning_rate",
        "learning rate of the critics",
        agents=_ACTOR_CRITIC,
    ),
    Metric("scheduled_temperature_learning_rate", "learning rate of the temperature", agents=_SOFT),
    Metric("scheduled_dual_learning_rate", "learning rate of temperatures and multipliers", agents=("dmpo",)),
    Metric("scheduled_entropy_cost", "weight of the entropy bonus", agents=("impala", "appo", "a2c", "a3c", "ppo")),
    Metric("scheduled_clip", "clipping range of the probability ratio", agents=("ppo", "appo")),
    Metric(
        "scheduled_importance_exponent",
        "how far importance weights correct the bias of sampling by priority",
        agents=("apex", "r2d2"),
    ),
    Metric(
        "scheduled_epsilon", "exploration rate of the first environment", agents=("pqn", "apex", "r2d2", "qmix", "vdn")
    ),
)
"""Settings that are schedules, at the newest learner step; a run has those that it is configured with."""
