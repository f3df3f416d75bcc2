"""The table of networks in the run directory."""

import tensorflow as tf

from callboard.agents.variables.weight_names import named_weights
from callboard.launch.nodes.learning.prepared_learner import write_network_table
from callboard.launch.run_directory.layout import RunDirectory


class Bias(tf.Module):
    def __init__(self):
        super().__init__()
        self.bias = tf.Variable([1.0, 2.0])


def test_the_line_for_the_user_names_the_file(tmp_path):
    line = write_network_table(RunDirectory(tmp_path), Bias())
    assert line == "networks: 2 parameters in 1 layer, see network.txt"
    assert "bias [2]" in (tmp_path / "network.txt").read_text()


def test_weights_have_the_names_by_which_they_are_frozen(tmp_path):
    networks = tf.Module()
    networks.network = tf.Module()
    networks.network.torso = tf.keras.Sequential([tf.keras.layers.Dense(3), tf.keras.layers.Dense(2)])
    networks.network.torso.build((None, 4))
    write_network_table(RunDirectory(tmp_path), networks)
    lines = (tmp_path / "network.txt").read_text().splitlines()
    for name, weight in named_weights(networks).items():
        assert f"{name} {weight.shape.as_list()}" in lines
    assert any(line.endswith("/kernel [4, 3]") for line in lines)


def test_a_directory_that_cannot_be_written_does_not_end_the_run(tmp_path):
    assert write_network_table(RunDirectory(tmp_path / "missing"), Bias()).startswith("networks: 2 parameters")
