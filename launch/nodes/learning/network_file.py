"""The table of a run's networks in its run directory."""

import logging
from typing import Any

from ....agents.learning.weight_names import named_weights
from ....atomic_files import write_file
from ....networks.summary import summarize_networks
from ...run_directory.layout import RunDirectory


def write_network_table(directory: RunDirectory, networks: Any) -> str:
    """Writes a table of all layers, and the names of all weights, to `network.txt`; returns a line for the user.

    Args:
      directory: the run directory.
      networks: what `Agent.make_networks` has returned.
    """
    summary = summarize_networks(networks)
    weights = [f"{name} {weight.shape.as_list()}" for name, weight in named_weights(networks).items()]
    text = "\n".join([summary.table(), "", "weights by the names that freeze and init_parts take:", *weights, ""])
    try:
        write_file(directory.network, text)
    except OSError as error:
        # A full disk is reported by what matters more.
        logging.warning("%s was not written: %s", directory.network.name, error)
    return f"networks: {summary.line()}, see {directory.network.name}"
