"""The table of agents: what the tests that hold for every agent need to know of each.

A new agent enters this table.  Then it is trained under every launcher, with central inference and by several learners,
loses nodes, resumes, is evaluated, and its update is compared on several devices.
"""

from typing import Any

import pytest
from agent_case import AgentCase
from small_updates import (
    CLIPPED,
    LSTM,
    ONE_STEP,
    PLAIN,
    RAW,
    SAC_EPSILON,
    SAC_RATES,
    SIZES,
    SMALL,
    SMALL_APEX,
    SMALL_DRQ,
    SMALL_QUEUE,
    SMALL_TEAM,
    SmallUpdate,
    bonus,
)

CARTPOLE = ("CartPole-v1", 475, 400_000)
PENDULUM = ("Pendulum-v1", -200, 20_000)
BREAKOUT = ("MinAtar/Breakout-v1", 3, 1_000_000)
SMALLER_REPLAY = {
    "--agent.replay.size=5000": "was made with another max_size, .* items, which follow from agent.replay.size"
}

AGENT_CASES = (
    AgentCase(
        "impala",
        "impala-cartpole",
        goal=475,
        default_tasks=(CARTPOLE, BREAKOUT),
        short=dict(unroll_length=5),
        changed_replay={"--agent.unroll-length=5": "was made with another signature"},
        small_updates={
            "impala": SmallUpdate({**SMALL_QUEUE, **PLAIN, **LSTM, "optimizer.learning_rate": 0.1}, transitions=5),
            "impala-rnd": SmallUpdate(
                {**SMALL_QUEUE, **PLAIN, **LSTM, "optimizer.learning_rate": 0.1, **bonus("rnd")},
                transitions=5,
                slow=True,
            ),
        },
        reads_queue=True,
    ),
    AgentCase(
        "appo",
        "appo-cartpole",
        goal=475,
        default_tasks=(CARTPOLE,),
        short=dict(unroll_length=5),
        changed_replay={"--agent.unroll-length=5": "was made with another signature"},
        small_updates={
            # It has IMPALA's parts, but for the policy's loss.
            "appo": SmallUpdate({**SMALL_QUEUE, **PLAIN, "optimizer.learning_rate": 0.1}, transitions=5, slow=True)
        },
        reads_queue=True,
    ),
    AgentCase(
        "pqn",
        "pqn-cartpole",
        goal=400,
        default_tasks=(CARTPOLE,),
        short=dict(unroll_length=5, epochs=2),
        changed_replay={},
        small_updates={
            "pqn": SmallUpdate(
                {**SMALL_QUEUE, **RAW, **ONE_STEP, "optimizer.learning_rate": 1.0, **LSTM}, transitions=5
            )
        },
        evaluate_every=60_000,
        reads_queue=True,
        updates_per_call=False,
    ),
    AgentCase(
        "apex",
        "apex-cartpole",
        goal=150,
        default_tasks=(CARTPOLE, BREAKOUT),
        short={},
        changed_replay={
            "--agent.n-step=5": "was made with another signature",
            "--replay-shards=2": "was saved in 1 shard.*replay_shards 1",
        },
        small_updates={
            "apex": SmallUpdate(SMALL_APEX, transitions=3),
            # The losses differ, and the rest is the same.
            "apex-categorical": SmallUpdate(
                {**SMALL_APEX, "distribution": "categorical", "atoms": 5}, transitions=3, slow=True
            ),
            "apex-quantile": SmallUpdate(
                {**SMALL_APEX, "distribution": "quantile", "atoms": 5}, transitions=3, slow=True
            ),
            "apex-implicit": SmallUpdate(
                {**SMALL_APEX, "distribution": "implicit", "atoms": 5, "noisy": True}, transitions=3, slow=True
            ),
            "apex-rnd": SmallUpdate({**SMALL_APEX, **bonus("rnd")}, transitions=3, slow=True),
            "apex-spread-rnd": SmallUpdate(
                {**SMALL_APEX, **bonus("rnd"), "bonus.spread": True}, transitions=3, slow=True
            ),
        },
        prioritized=True,
    ),
    AgentCase(
        "a2c",
        "a2c-cartpole",
        goal=400,
        default_tasks=(CARTPOLE,),
        short=dict(unroll_length=5),
        changed_replay={},
        small_updates={
            # It has PPO's networks and IMPALA's loss of the policy.
            "a2c": SmallUpdate({**SMALL_QUEUE, **PLAIN, "optimizer.learning_rate": 1.0}, transitions=5, slow=True),
            "a2c-gaussian": SmallUpdate(
                {**SMALL_QUEUE, **PLAIN, "optimizer.learning_rate": 1.0, **LSTM},
                transitions=5,
                continuous=True,
                slow=True,
            ),
            "a2c-rnd": SmallUpdate(
                {**SMALL_QUEUE, **PLAIN, "optimizer.learning_rate": 1.0, **bonus("rnd")}, transitions=5, slow=True
            ),
        },
        evaluate_every=60_000,
        reads_queue=True,
        updates_per_call=False,
    ),
    AgentCase(
        "a3c",
        "a3c-cartpole",
        goal=400,
        default_tasks=(CARTPOLE,),
        short=dict(unroll_length=5),
        changed_replay={"--agent.unroll-length=5": "was made with another signature"},
        # Its batches are gradients, of A2C's loss, see tests/agents/test_a3c.py.
        small_updates={},
        evaluate_every=60_000,
        reads_queue=True,
        updates_per_call=False,
        several_learners=False,
    ),
    AgentCase(
        "ppo",
        "ppo-cartpole",
        goal=400,
        default_tasks=(CARTPOLE, BREAKOUT),
        short=dict(unroll_length=5, epochs=2),
        changed_replay={},
        small_updates={
            # The losses differ by the distribution alone.
            "ppo": SmallUpdate(
                {**SMALL_QUEUE, **PLAIN, **ONE_STEP, "optimizer.learning_rate": 1.0}, transitions=5, slow=True
            ),
            "ppo-gaussian": SmallUpdate(
                {**SMALL_QUEUE, **PLAIN, **ONE_STEP, "optimizer.learning_rate": 1.0, **LSTM},
                transitions=5,
                continuous=True,
            ),
            "ppo-icm": SmallUpdate(
                {**SMALL_QUEUE, **PLAIN, **ONE_STEP, "optimizer.learning_rate": 1.0, **LSTM, **bonus("icm")},
                transitions=5,
                continuous=True,
                slow=True,
            ),
        },
        # It reaches its goal within seconds.
        evaluate_every=60_000,
        reads_queue=True,
        updates_per_call=False,
    ),
    AgentCase(
        "r2d2",
        "r2d2-cartpole-masked",
        goal=60,
        default_tasks=(CARTPOLE,),
        short=dict(burn_in=2, trace_length=8, period=5),
        changed_replay={"--agent.trace-length=20": "was made with another signature"},
        small_updates={
            # It has Ape-X's priorities and a core such as IMPALA's.
            **{
                name: SmallUpdate(
                    {
                        **RAW,
                        **SMALL,
                        **CLIPPED,
                        "n_step": 2,
                        "burn_in": 2,
                        "trace_length": 6,
                        "period": 3,
                        "network.lstm_size": 3,
                        "network.stream_size": 4,
                        "optimizer.learning_rate": 1.0,
                        **of_bonus,
                    },
                    transitions=8,
                    slow=True,
                )
                for name, of_bonus in (("r2d2", {}), ("r2d2-icm", {**bonus("icm"), "bonus.spread": True}))
            }
        },
        prioritized=True,
        rounded=frozenset({"q", "core"}),
    ),
    AgentCase(
        "qmix",
        "qmix-two-step",
        goal=8,
        default_tasks=(),
        evaluate_every=10_000,
        short=dict(burn_in=0, trace_length=8, period=5),
        changed_replay={"--agent.trace-length=6": "was made with another signature"},
        small_updates={
            # A single agent is a team of one.  It has R2D2's sequences.
            "qmix": SmallUpdate({**SMALL_TEAM, "mixing_size": 3, "hypernetwork_size": 0}, transitions=8, slow=True)
        },
        limited_env="CartPole-v1",
    ),
    AgentCase(
        "vdn",
        "vdn-two-step",
        goal=7,
        default_tasks=(),
        evaluate_every=10_000,
        short=dict(burn_in=0, trace_length=8, period=5),
        changed_replay={"--agent.trace-length=6": "was made with another signature"},
        small_updates={"vdn": SmallUpdate(SMALL_TEAM, transitions=8, slow=True)},
        limited_env="CartPole-v1",
    ),
    AgentCase(
        "sac",
        "sac-pendulum",
        goal=-300,
        default_tasks=(PENDULUM,),
        short={},
        changed_replay=SMALLER_REPLAY,
        small_updates={
            "sac": SmallUpdate({**SIZES, **RAW, **SAC_EPSILON, **SAC_RATES}, transitions=1, continuous=True),
            "sac-ensemble": SmallUpdate(
                {
                    **{**SIZES, **RAW, **SAC_EPSILON, **SAC_RATES},
                    "n_step": 2,
                    "critics.number": 3,
                    "critics.minimum_of": 2,
                    "critics.dropout": 0.2,
                },
                transitions=2,
                continuous=True,
                slow=True,
            ),
            # Statistics are those of all replicas.
            "sac-crossq": SmallUpdate(
                {**SIZES, **RAW, **SAC_EPSILON, **SAC_RATES, "crossq": True}, transitions=1, continuous=True, slow=True
            ),
            # The losses differ, and the rest is the same.
            "sac-discrete": SmallUpdate({**SIZES, **RAW, **SAC_EPSILON, **SAC_RATES}, transitions=1, slow=True),
        },
        first_loss="critic loss",
        learning_rates=tuple(f"{part}_optimizer.learning_rate" for part in ("critic", "actor", "temperature")),
        continuous=True,
    ),
    AgentCase(
        "d4pg",
        "d4pg-pendulum",
        goal=-300,
        default_tasks=(),
        short={},
        changed_replay=SMALLER_REPLAY | {"--agent.n-step=2": "was made with another signature"},
        small_updates={
            # It has SAC's parts.
            "d4pg": SmallUpdate(
                {
                    **SIZES,
                    "n_step": 3,
                    "atoms": 5,
                    "value_min": -2.0,
                    "value_max": 2.0,
                    "target_update_period": 1,
                    "actor_optimizer.epsilon": 1.0,
                    "critic_optimizer.epsilon": 1.0,
                    "actor_optimizer.learning_rate": 0.1,
                    "critic_optimizer.learning_rate": 0.2,
                },
                transitions=3,
                continuous=True,
                slow=True,
            )
        },
        first_loss="critic loss",
        learning_rates=("critic_optimizer.learning_rate", "actor_optimizer.learning_rate"),
        continuous=True,
    ),
    AgentCase(
        "dmpo",
        "dmpo-pendulum",
        goal=-300,
        default_tasks=(),
        short={},
        changed_replay=SMALLER_REPLAY | {"--agent.n-step=2": "was made with another signature"},
        small_updates={
            # It has D4PG's critic, and a third loss as SAC.
            "dmpo": SmallUpdate(
                {
                    **RAW,
                    **SIZES,
                    "n_step": 3,
                    "atoms": 5,
                    "value_min": -2.0,
                    "value_max": 2.0,
                    "action_samples": 3,
                    "target_update_period": 1,
                    **{f"{part}_optimizer.epsilon": 1.0 for part in ("actor", "critic", "dual")},
                    "actor_optimizer.learning_rate": 0.1,
                    "critic_optimizer.learning_rate": 0.2,
                    "dual_optimizer.learning_rate": 0.3,
                },
                transitions=3,
                continuous=True,
                slow=True,
            )
        },
        first_loss="critic loss",
        learning_rates=tuple(f"{part}_optimizer.learning_rate" for part in ("critic", "actor", "dual")),
        continuous=True,
    ),
    AgentCase(
        "drq",
        "drq-minatar-breakout",
        goal=1.5,
        default_tasks=(),
        short={},
        changed_replay=SMALLER_REPLAY,
        small_updates={
            # Its losses are SAC's.
            "drq": SmallUpdate(SMALL_DRQ, transitions=1, images=True, slow=True)
        },
        first_loss="critic loss",
        learning_rates=tuple(f"{part}_optimizer.learning_rate" for part in ("critic", "actor", "temperature")),
    ),
    AgentCase(
        "bc",
        "bc-cartpole",
        # Without recorded episodes it imitates itself.
        goal=5,
        default_tasks=(),
        short={},
        changed_replay=SMALLER_REPLAY,
        small_updates={
            # It has PPO's networks.
            "bc": SmallUpdate({**SMALL, **CLIPPED, "optimizer.learning_rate": 1.0}, transitions=1, slow=True),
            "bc-gaussian": SmallUpdate(
                {**SMALL, **CLIPPED, "trace_length": 4, **LSTM, "optimizer.learning_rate": 1.0},
                transitions=4,
                continuous=True,
                slow=True,
            ),
        },
    ),
    AgentCase(
        "td3_bc",
        "td3_bc-pendulum",
        # Without recorded episodes it stays near what it did.
        goal=-2000,
        default_tasks=(),
        short={},
        changed_replay=SMALLER_REPLAY,
        small_updates={
            "td3_bc": SmallUpdate(
                {
                    **SIZES,
                    "actor_optimizer.epsilon": 1.0,
                    "critic_optimizer.epsilon": 1.0,
                    "actor_optimizer.learning_rate": 0.1,
                    "critic_optimizer.learning_rate": 0.2,
                },
                transitions=1,
                continuous=True,
                slow=True,
            )
        },
        first_loss="critic loss",
        learning_rates=("critic_optimizer.learning_rate", "actor_optimizer.learning_rate"),
        continuous=True,
    ),
    AgentCase(
        "awr",
        "awr-cartpole",
        goal=5,
        default_tasks=(),
        short=dict(trace_length=5, period=5),
        changed_replay={"--agent.trace-length=8": "was made with another signature"},
        small_updates={
            # It has BC's policy and PPO's returns.
            "awr": SmallUpdate(
                {**SMALL, **CLIPPED, "trace_length": 5, "normalize_rewards": False, "optimizer.learning_rate": 1.0},
                transitions=5,
                slow=True,
            )
        },
        evaluate_every=40_000,
    ),
    AgentCase(
        "cql",
        "cql-pendulum",
        # Without recorded episodes it stays near what it did.
        goal=-2000,
        default_tasks=(),
        short={},
        changed_replay=SMALLER_REPLAY,
        small_updates={
            # It has SAC's parts.
            f"cql{ending}": SmallUpdate(
                {
                    **SIZES,
                    **SAC_EPSILON,
                    "action_samples": 2,
                    "actor_optimizer.learning_rate": 0.1,
                    "critic_optimizer.learning_rate": 0.2,
                    "temperature_optimizer.learning_rate": 0.3,
                },
                transitions=1,
                continuous=not ending,
                slow=True,
            )
            for ending in ("", "-discrete")
        },
        first_loss="critic loss",
        learning_rates=tuple(f"{part}_optimizer.learning_rate" for part in ("critic", "actor", "temperature")),
        continuous=True,
    ),
    AgentCase(
        "iql",
        "iql-pendulum",
        goal=-2000,
        default_tasks=(),
        short={},
        changed_replay=SMALLER_REPLAY,
        small_updates={
            f"iql{ending}": SmallUpdate(
                {**SMALL, **CLIPPED, "optimizer.learning_rate": 1.0}, transitions=1, continuous=not ending, slow=True
            )
            for ending in ("", "-discrete")
        },
        continuous=True,
    ),
    AgentCase(
        "td3",
        "td3-pendulum",
        goal=-300,
        default_tasks=(PENDULUM,),
        short={},
        changed_replay=SMALLER_REPLAY,
        small_updates={
            # It has SAC's parts.
            "td3": SmallUpdate(
                {
                    **RAW,
                    **SIZES,
                    "actor_optimizer.epsilon": 1.0,
                    "critic_optimizer.epsilon": 1.0,
                    "actor_optimizer.learning_rate": 0.1,
                    "critic_optimizer.learning_rate": 0.2,
                },
                transitions=1,
                continuous=True,
                slow=True,
            )
        },
        first_loss="critic loss",
        learning_rates=("critic_optimizer.learning_rate", "actor_optimizer.learning_rate"),
        continuous=True,
    ),
)

SMALL_UPDATES = {name: (case, small) for case in AGENT_CASES for name, small in case.small_updates.items()}

_SAC = next(case for case in AGENT_CASES if case.name == "sac")
RUN_CASES = (*AGENT_CASES, _SAC._replace(name="sac-discrete", recipe="sac-cartpole", goal=150, continuous=False))
"""Cases for tests of whole runs: every agent, and one with other actions."""


def one_fast_case() -> list[Any]:
    """Returns parameters of a test for every one of `RUN_CASES`: the first one is fast, the others are slow."""
    first, *others = RUN_CASES
    return [
        pytest.param(first, id=first.name),
        *(pytest.param(case, id=case.name, marks=pytest.mark.slow) for case in others),
    ]
