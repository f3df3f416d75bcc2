"""`dataset_info`: what a data set of recorded episodes holds."""

import os

from ...environments.recorded import open_data
from ...environments.recorded.dataset_summary import DatasetInfo, summarize
from ...launch.experiments.recorded_metadata import recorded_environment, recorded_seed
from ...settings.setting_arguments import checked_names


@checked_names
def dataset_info(dataset: str | os.PathLike[str]) -> DatasetInfo:
    """Reads a data set, and returns its returns, lengths and actions.

        info = dataset_info("runs/ppo")
        print(info.returns.mean(), info.lengths.max(), info.actions[0].fractions)

    Args:
      dataset: a run that has recorded its episodes, the path of a data set, or the name of one in Minari's folder.

    Raises:
      CallboardError: there is none, it cannot be read, or Minari is not installed.
    """
    data = open_data(dataset)
    environment = recorded_environment(data.metadata)
    return summarize(data, environment and environment[0], recorded_seed(data.metadata))
