"""Runs the trials of `callboard tune` on Ray Tune."""

import functools
import logging
import math
import os
import shutil
import signal
import time
import warnings
from typing import Any

import tensorflow as tf  # noqa: F401  Before Ray begins.
from ray import nodes
from ray import tune as ray_tune

from ...errors import CallboardError
from ...launch.launchers.ray.connection import connected
from ...launch.processes.stop_signals import stop_signals
from .records import TuneDirectory
from .schedulers import make_scheduler
from .search_definition import Tuning
from .trial import VALUES, run_trial, trial_number
from .trial_logger import TrialLogger

_SIGNAL_SECONDS = 1.0
_QUIET = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # The last report of a trial may lack the keys that schedulers read.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "5",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
}


def run_trials(tuning: Tuning, directory: TuneDirectory, resume: bool, ray_address: str | None) -> int | None:
    """Runs all trials, or those that remain, and keeps `directory.trials` up to date.

    Returns:
      The number of the signal that stopped the search; None if it was completed.
    """
    os.environ.update(_QUIET)
    # Actors are not reused: each trial has its own process, which holds no state of another trial.
    warnings.filterwarnings("ignore", message=".*reuse_actors.*")
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    received: list[int] = []

    def leave(number: int) -> None:
        if not received:
            received.append(number)
            raise KeyboardInterrupt

    try:
        with (
            stop_signals(leave),
            connected(ray_address, _cpus_at_a_time(tuning)) as joined,
        ):
            _check_cluster(tuning, joined)
            directory.create(tuning.to_file())
            signal_number = _fit(
                _make_tuner(tuning, directory, resume, tuning.concurrent if joined else tuning.trials_at_a_time)
            )
    except KeyboardInterrupt:
        if not received:
            raise
        signal_number = received[0]
    for number in directory.read_trials():
        # Tune ends trials without any clean-up.
        shutil.rmtree(directory.run(number).temporary, ignore_errors=True)
    return signal_number


def _check_cluster(tuning: Tuning, joined: bool) -> None:
    if joined and tuning.scheduler == "pbt" and tuning.concurrent is not None:
        raise CallboardError(
            "under pbt the Ray cluster decides how many trials run at a time; leave out --concurrent, or set "
            "--cpus-per-trial"
        )
    machines = [machine["Resources"] for machine in nodes() if machine["Alive"]]
    needs = {"CPU": _most_cpus(tuning), "GPU": tuning.gpus_per_trial}
    if not any(all(machine.get(name, 0.0) >= amount for name, amount in needs.items()) for machine in machines):
        have = ", ".join(f"{machine.get('CPU', 0.0):g} and {machine.get('GPU', 0.0):g}" for machine in machines)
        raise CallboardError(
            f"no machine of the Ray cluster has the {needs['CPU']:g} CPU and {needs['GPU']:g} GPU of a trial, but "
            f"{have}; lower --cpus-per-trial or --gpus-per-trial"
        )


def _most_cpus(tuning: Tuning) -> float:
    """Returns the CPUs of the trial that needs most of them."""
    if not isinstance(tuning.cpus_per_trial, str):
        return tuning.cpus_per_trial
    return max(map(tuning.cpus, tuning.samples_of_all()))


def _cpus_at_a_time(tuning: Tuning) -> int:
    """Returns the CPUs of a Ray cluster that is started for the search."""
    if not isinstance(tuning.cpus_per_trial, str):
        return math.ceil(tuning.trials_at_a_time * tuning.cpus_per_trial)
    needs = sorted(map(tuning.cpus, tuning.samples_of_all()), reverse=True)
    at_a_time = tuning.concurrent or (tuning.trials if tuning.scheduler == "pbt" else 1)
    return math.ceil(max(sum(needs[:at_a_time]), len(os.sched_getaffinity(0))))


def _resources(tuning: Tuning) -> Any:
    if not isinstance(tuning.cpus_per_trial, str):
        return {"cpu": tuning.cpus_per_trial, "gpu": tuning.gpus_per_trial}

    def of_trial(config: dict[str, Any]) -> Any:
        return ray_tune.PlacementGroupFactory([{"CPU": tuning.cpus(config[VALUES]), "GPU": tuning.gpus_per_trial}])

    return of_trial


def _make_tuner(tuning: Tuning, directory: TuneDirectory, resume: bool, concurrent: int | None) -> Any:
    trainable = ray_tune.with_resources(
        functools.partial(run_trial, tuning=tuning, directory=str(directory.path), working_directory=os.getcwd()),
        _resources(tuning),
    )
    if resume and any(directory.ray.glob("experiment_state-*.json")):
        tuner = ray_tune.Tuner.restore(str(directory.ray), trainable, resume_errored=True)
    else:
        shutil.rmtree(directory.ray, ignore_errors=True)
        sampled: dict[str, Any] = {}
        if tuning.sampler == "optuna":
            from .optuna_sampler import make_sampler

            sampled = {"search_alg": make_sampler(tuning), "num_samples": tuning.trials}
        tuner = ray_tune.Tuner(
            trainable,
            param_space={} if sampled else {VALUES: ray_tune.grid_search(tuning.samples_of_all())},
            tune_config=ray_tune.TuneConfig(
                **sampled,
                metric=tuning.metric,
                mode=tuning.mode,
                scheduler=make_scheduler(tuning, directory),
                # Under PBT, waiting trials of a population would count as running.
                max_concurrent_trials=concurrent if tuning.scheduler != "pbt" else None,
                trial_name_creator=_trial_name,
                trial_dirname_creator=_trial_name,
            ),
            run_config=ray_tune.RunConfig(
                name=directory.ray.name,
                storage_path=str(directory.path),
                # A trial may take over a checkpoint long after the trial that wrote it has written newer ones.
                checkpoint_config=ray_tune.CheckpointConfig(num_to_keep=None if tuning.scheduler == "pbt" else 2),
                callbacks=[TrialLogger(directory.path, tuning)],
                verbose=0,
            ),
        )
    return tuner


def _fit(tuner: Any) -> int | None:
    received: list[tuple[int, float]] = []

    def end(number: int) -> None:
        now = time.monotonic()
        if received and now - received[0][1] < _SIGNAL_SECONDS:
            return
        if received or signal.getsignal(signal.SIGUSR1) in (signal.SIG_DFL, None):
            raise KeyboardInterrupt
        received.append((number, now))
        signal.raise_signal(signal.SIGUSR1)  # Tune's own signal to save its state and stop.

    before = signal.getsignal(signal.SIGUSR1)
    with stop_signals(end):
        try:
            tuner.fit()
        finally:
            signal.signal(signal.SIGUSR1, before)
    return received[0][0] if received else None


def _trial_name(trial: Any) -> str:
    return f"{trial_number(trial.trial_id, trial.config):02d}"
