"""DeepMind Acme's IMPALA for TensorFlow, distributed with Launchpad: a learner, replay, and actors."""

import os
import pathlib

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
# Launchpad's processes must find the modules of this directory too.
os.environ["PYTHONPATH"] = str(pathlib.Path(__file__).parent)

import acme
import dm_env
import launchpad as lp
import reverb
import sonnet as snt
import tensorflow as tf
from acme import datasets, specs
from acme.adders import reverb as adders
from acme.agents.tf.impala import acting, learning
from acme.tf import networks, variable_utils
from acme.tf import utils as tf2_utils
from acme.tf.networks import vision
from acme.utils import loggers
from dm_env import specs as dm_specs
from work import ACTORS, BATCH, FEATURES, HIDDEN, UNROLL, Trained, arguments, make

# An actor has one environment here, so there are as many actors as cores.
_BATCHES_IN_QUEUE = 2


class Environment(dm_env.Environment):
    """A Gymnasium environment as a dm_env environment."""

    def __init__(self, task):
        self._environment = make(task)
        self._over = True

    def reset(self):
        self._over = False
        return dm_env.restart(self._environment.reset()[0])

    def step(self, action):
        if self._over:
            return self.reset()
        observation, reward, terminated, truncated, _ = self._environment.step(int(action))
        self._over = terminated or truncated
        if terminated:
            return dm_env.termination(reward=reward, observation=observation)
        return (dm_env.truncation if truncated else dm_env.transition)(reward=reward, observation=observation)

    def observation_spec(self):
        space = self._environment.observation_space
        return dm_specs.Array(space.shape, space.dtype, name="observation")

    def action_spec(self):
        return dm_specs.DiscreteArray(int(self._environment.action_space.n), name="action")


class Network(snt.RNNCore):
    """The network used by all sides, as a stateless core."""

    def __init__(self, task, num_actions):
        super().__init__()
        if task == "images":
            self._torso = snt.Sequential(
                [
                    lambda image: tf.cast(image, tf.float32) / 255.0,
                    vision.ResNetTorso(),
                    tf.nn.relu,
                    snt.Flatten(),
                    snt.Linear(FEATURES),
                    tf.nn.relu,
                ]
            )
        else:
            self._torso = snt.nets.MLP(HIDDEN, activation=tf.tanh, activate_final=True)
        self._head = networks.PolicyValueHead(num_actions)

    def __call__(self, observation, state):
        return self._head(self._torso(observation)), state

    def initial_state(self, batch_size, **settings):
        return ()


class CountingLearner(learning.IMPALALearner):
    """A learner that counts the frames of every update."""

    def __init__(self, frames, **settings):
        super().__init__(**settings)
        self._frames = frames
        self._trained = Trained()

    def step(self):
        super().step()
        self._trained.update(self._frames)


def make_network(task, spec):
    network = Network(task, spec.actions.num_values)
    tf2_utils.create_variables(network, [spec.observations])
    return network


def make_tables(spec, sequences):
    extras = {"core_state": (), "logits": tf.ones(spec.actions.num_values)}
    signature = adders.SequenceAdder.signature(spec, extras_spec=extras, sequence_length=UNROLL + 1)
    return [reverb.Table.queue(adders.DEFAULT_PRIORITY_TABLE, _BATCHES_IN_QUEUE * sequences, signature=signature)]


def make_learner(task, spec, sequences, learning_rate, replay):
    return CountingLearner(
        sequences * UNROLL,
        environment_spec=spec,
        network=make_network(task, spec),
        dataset=datasets.make_reverb_dataset(server_address=replay.server_address, batch_size=sequences),
        learning_rate=learning_rate,
        entropy_cost=0.01,
        baseline_cost=0.5,
        max_gradient_norm=40.0,
        logger=loggers.NoOpLogger(),
    )


def make_actor(task, spec, replay, learner):
    network = make_network(task, spec)
    client = variable_utils.VariableClient(learner, {"network": network.variables}, update_period=UNROLL)
    adder = adders.SequenceAdder(replay, period=UNROLL, sequence_length=UNROLL + 1)
    actor = acting.IMPALAActor(network, adder, client)
    return acme.EnvironmentLoop(Environment(task), actor, logger=loggers.NoOpLogger())


def main():
    work = arguments()
    spec = specs.make_environment_spec(Environment(work.task))
    # For the score, the defaults of Acme's agent.
    sequences, learning_rate = (16, 1e-3) if work.goal == "score" else (BATCH // UNROLL, 6e-4)
    program = lp.Program("impala")
    with program.group("replay"):
        replay = program.add_node(lp.ReverbNode(lambda: make_tables(spec, sequences)))
    with program.group("learner"):
        learner = program.add_node(lp.CourierNode(make_learner, work.task, spec, sequences, learning_rate, replay))
    with program.group("actor"):
        for _ in range(ACTORS):
            program.add_node(lp.CourierNode(make_actor, work.task, spec, replay, learner))
    lp.launch(program, lp.LaunchType.LOCAL_MULTI_PROCESSING, terminal="current_terminal").wait()


if __name__ == "__main__":
    main()
