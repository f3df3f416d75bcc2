"""The table of a network's layers, whatever it is made of."""

import pytest
import tensorflow as tf
from agent_cases import AGENT_CASES

from callboard.examples.reinforce import Reinforce
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.settings import parse_experiment, read_recipe
from callboard.networks.summary import summarize_networks


def parameters_of(networks):
    unique = {id(variable): variable for variable in networks.variables}
    return sum(variable.shape.num_elements() for variable in unique.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=() if case.name in ("ppo", "sac", "qmix") else pytest.mark.slow)
        for case in AGENT_CASES
    ],
)
def test_all_parameters_of_an_agent_are_counted_once(case):
    experiment = parse_experiment(None, read_recipe(case.recipe), ["--agent.network.hidden-sizes=[4]"])
    networks = experiment.agent.make_networks(experiment.layout())
    summary = summarize_networks(networks)
    assert summary.parameters == parameters_of(networks) > 0
    assert summary.trainable <= summary.parameters
    assert all(layer.path in summary.table() for layer in summary.layers)


def test_an_agent_of_the_user_s_own_is_summarized_too():
    networks = Reinforce().make_networks(Experiment(agent=Reinforce(), env="CartPole-v1").layout())
    assert summarize_networks(networks).parameters == parameters_of(networks)


class Own(tf.Module):
    """Variables, layers and a list, as a user may write them."""

    def __init__(self):
        super().__init__()
        self._scale = tf.Variable(tf.ones((2, 3)), trainable=False)
        self.layers = [tf.keras.layers.Dense(3), tf.keras.layers.Dense(1, use_bias=False)]
        self.layers[0].build((None, 2))
        self.layers[1].build((None, 3))
        self.shared = {"again": self.layers[0]}


def test_layers_are_named_by_their_attributes_and_shared_ones_are_listed_once():
    summary = summarize_networks(Own())
    assert [tuple(layer) for layer in summary.layers] == [
        ("", "Own", ("scale [2, 3]",), 6, 0),
        ("layers.0", "Dense", ("kernel [2, 3]", "bias [3]"), 9, 9),
        ("layers.1", "Dense", ("kernel [3, 1]",), 3, 3),
    ]
    assert summary.line() == "18 parameters in 3 layers, 6 of them not trainable"
    assert summary.table().splitlines() == [
        "layer     kind   parameters  variables",
        "-         Own             6  scale [2, 3]",
        "layers.0  Dense           9  kernel [2, 3], bias [3]",
        "layers.1  Dense           3  kernel [3, 1]",
        "total                    18  12 trainable",
    ]


def test_networks_may_be_in_a_dictionary():
    summary = summarize_networks({"actor": Own(), "critic": [Own()]})
    assert summary.parameters == 36
    assert {layer.path for layer in summary.layers} >= {"actor", "critic.0", "critic.0.layers.1"}
