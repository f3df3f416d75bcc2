"""`tune`: searches settings with many runs, as `callboard tune` does."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import CallboardError, check_type, exits_refused, named_path
from ...launch.experiments.experiment import Experiment, check_is_experiment
from ...launch.experiments.new_or_resumed import check_can_be_made, default_run_directory
from ...launch.experiments.settings import experiment_settings
from ...messages.install_commands import install_command
from ...settings.setting_arguments import check_argument_names
from ...settings.setting_types import given_fields
from .records import Trial, TuneDirectory, best_trial
from .search_definition import Tuning, write_best


@dataclasses.dataclass(frozen=True)
class TuneResult:
    """The result of a search.

    Attributes:
      directory: directory of all trials; `best.yaml` in it is a recipe with the best settings.
      trials: the trials, by number.
      best: the trial with the best value of the metric; None if none has one.
    """

    directory: pathlib.Path
    trials: Sequence[Trial]
    best: Trial | None

    @property
    def best_settings(self) -> dict[str, Any]:
        """The searched settings of the best trial, by name such as `agent.optimizer.learning_rate`."""
        return {} if self.best is None else dict(self.best.best_values)


@exits_refused()
def tune(
    experiment: Experiment,
    search: Mapping[str, str],
    *,
    run_dir: str | os.PathLike[str] | None = None,
    ray_address: str | None = None,
    **options: Any,
) -> TuneResult:
    """Searches settings with many runs on Ray Tune, see docs/tune.md.

        result = tune(experiment, {"agent.optimizer.learning_rate": "loguniform(1e-4, 1e-2)"}, samples=8)
        print(result.best_settings, result.best.best)

    Args:
      experiment: what is varied.
      search: distributions by setting, such as `choice(a, b)`.
      run_dir: directory of all trials; None makes a new one under `runs/`.
      ray_address: address of a Ray cluster, `auto` for one that runs here, or `local`.
      **options: the options of the command, such as `samples` and `scheduler`; see `Tuning`.

    Raises:
      CallboardError: nothing was started, because of the problem that the message names.
    """
    check_is_experiment(experiment)
    if not isinstance(search, Mapping) or not search:
        raise CallboardError('search must be distributions by setting, such as {"seed": "randint(1, 9)"}')
    check_type("ray_address", ray_address, str | None, "the address of a Ray cluster")
    check_argument_names(Tuning, options)
    values = given_fields(Tuning, options)
    settings = settings_of_trials(experiment)
    tuning = Tuning(settings=settings, search=[f"{key}={text}" for key, text in search.items()], **values)
    name = settings["agent"]["name"].rpartition(":")[2].lower()
    path = named_path(default_run_directory(experiment, f"tune-{name}") if run_dir is None else run_dir, "search")
    directory = new_search(tuning, pathlib.Path(path))
    check_ray()
    from .search import run_trials

    run_trials(tuning, directory, False, ray_address)
    trials = directory.read_trials(tuning.space())
    best = best_trial(trials.values(), tuning.mode)
    if best is not None:
        write_best(tuning, directory, best)
    return TuneResult(directory.path, [trials[number] for number in sorted(trials)], best)


def settings_of_trials(experiment: Experiment) -> dict[str, Any]:
    """Returns the settings of an experiment that its trials vary: without a run directory, with absolute paths."""
    settings = experiment_settings(experiment.with_absolute_sources())
    del settings["run_dir"]
    return settings


def new_search(tuning: Tuning, path: pathlib.Path) -> TuneDirectory:
    """Returns the directory of a search, unless it cannot work or the directory is in use; writes nothing."""
    check_can_be_made(path)
    directory = TuneDirectory(path)
    if directory.settings.exists():
        raise CallboardError(
            f"there is already a search in {path}; continue it with callboard tune --resume, or name another directory"
        )
    if (directory.path / "experiment.yaml").exists():
        raise CallboardError(f"there is already a run in {path}; name another directory")
    tuning.check()
    if tuning.settings.get("init_from") or tuning.settings.get("freeze"):
        from ...launch.saved.warm_start import check_warm_start

        for values in tuning.samples_of_all():
            experiment = tuning.experiment(values, {})
            check_warm_start(experiment, experiment.agent, experiment.acting_layout())
    return directory


def check_ray() -> None:
    """Raises `CallboardError` if Ray is not installed."""
    try:
        import ray.tune  # noqa: F401
    except ImportError as error:
        raise CallboardError(f"callboard tune needs Ray ({error}): {install_command('callboard[ray]')}") from error
