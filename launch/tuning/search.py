"""The trials of `callboard tune` on Ray Tune: schedulers, progress lines and records."""

import functools
import logging
import math
import os
import pathlib
import shutil
import signal
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf  # noqa: F401  Before Ray begins.
from ray import nodes
from ray import tune as ray_tune
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, PopulationBasedTraining
from rich.console import Console

from ...errors import CallboardError
from ..launchers.ray.connection import connected
from ..stop_signals import stop_signals
from .records import Trial, TuneDirectory
from .search_definition import Tuning
from .search_space import Choice, SearchSpace, describe
from .trial import AT_STEPS, ENDED, STEPS, TOTAL_STEPS, VALUES, number_of, origin_of, run_trial

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
                scheduler=_make_scheduler(tuning, directory),
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
                callbacks=[Journal(directory.path, tuning)],
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
    return f"{number_of(trial.trial_id, trial.config):02d}"


def _make_scheduler(tuning: Tuning, directory: TuneDirectory) -> Any:
    if tuning.scheduler == "asha":
        return KeptAsha(
            directory=str(directory.path),
            max_t=tuning.max_steps,
            grace_period=tuning.first_rung,
            reduction_factor=tuning.reduction_factor,
        )
    if tuning.scheduler == "pbt":
        space = tuning.space()
        return KeptPbt(
            directory=str(directory.path),
            time_attr=STEPS,
            # Evaluations come shortly after a multiple of `evaluate_every`; the one nearest to the interval is used.
            perturbation_interval=tuning.perturbation_interval - tuning.evaluate_every / 2,
            hyperparam_mutations={VALUES: _mutations(space, tuning.settings["seed"])},
            custom_explore_fn=functools.partial(_into_ranges, space=space),
            require_attrs=False,
            log_config=False,
        )
    return FIFOScheduler()


def _mutations(space: SearchSpace, seed: int) -> dict[str, Any]:
    generator = np.random.default_rng([seed, 1])
    return {
        key: list(domain.options) if isinstance(domain, Choice) else functools.partial(domain.sample, generator)
        for key, domain in space.domains.items()
    }


def _into_ranges(config: dict[str, Any], space: SearchSpace) -> dict[str, Any]:
    return {**config, VALUES: space.clip(config[VALUES])}


class KeptAsha(ASHAScheduler):
    """Asynchronous successive halving (Li et al. 2018, https://arxiv.org/abs/1810.05934).

    A trial that is done before `max_t`, because it has reached `stop_return`, keeps its value for all later rungs,
    where other trials are compared to it.  When a search is resumed, earlier reports are restored to the rungs.  A
    trial that has reached `max_t` is left to end by itself, so that it counts as done and not as stopped early.
    """

    def __init__(self, directory: str, max_t: int, grace_period: int, reduction_factor: int):
        super().__init__(STEPS, max_t=max_t, grace_period=grace_period, reduction_factor=reduction_factor)
        self._directory = directory
        self._rung_steps = [grace_period]
        while self._rung_steps[-1] * reduction_factor < max_t:
            self._rung_steps.append(self._rung_steps[-1] * reduction_factor)

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        super().on_trial_add(tune_controller, trial)
        known = TuneDirectory(pathlib.Path(self._directory)).read_trials().get(number_of(trial.trial_id, trial.config))
        if known is None:
            return
        for steps, value in known.reports:
            super().on_trial_result(tune_controller, trial, {STEPS: steps, self._metric: value})
        if known.ended and known.reports:
            self._keep_for_later_rungs(tune_controller, trial, known.reports[-1][1])

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        if ENDED not in result:
            decision = super().on_trial_result(tune_controller, trial, result)
            return self.CONTINUE if result[STEPS] >= self._max_t else decision
        if self._metric in result:
            self._keep_for_later_rungs(tune_controller, trial, result[self._metric])
        return self.CONTINUE

    def _keep_for_later_rungs(self, tune_controller: Any, trial: Any, value: float) -> None:
        for steps in self._rung_steps:
            super().on_trial_result(tune_controller, trial, {STEPS: steps, self._metric: value})


class KeptPbt(PopulationBasedTraining):
    """Population based training (Jaderberg et al. 2017, https://arxiv.org/abs/1711.09846).

    When a search is resumed, each trial's last decision, score and checkpoint are restored.
    """

    def __init__(self, directory: str, **settings: Any):
        super().__init__(**settings)
        self._directory = directory

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        super().on_trial_add(tune_controller, trial)
        known = TuneDirectory(pathlib.Path(self._directory)).read_trials().get(number_of(trial.trial_id, trial.config))
        if known is None:
            return
        state, before = self._trial_state[trial], 0
        for steps, value in known.reports:
            taken = [at for _, at in known.takeovers if at <= steps]
            # A trial that has taken over weights continues from their step, which may be earlier.
            since = max([0 if steps < before else state.last_perturbation_time, *taken])
            before = steps
            if steps - since >= self._perturbation_interval:
                state.last_perturbation_time = state.last_train_time = steps
                state.last_score = self._metric_op * value
            else:
                state.last_perturbation_time = since
        if state.last_score is not None:
            state.last_checkpoint = trial.checkpoint


class Journal(ray_tune.Callback):
    """Records the events of trials, and prints a line for each."""

    def __init__(self, path: pathlib.Path, tuning: Tuning):
        self._tuning = tuning
        self._directory = TuneDirectory(path)
        self._trials = self._directory.read_trials()
        self._console = Console(highlight=False, soft_wrap=True, markup=False)

    def __reduce__(self) -> tuple[Callable[..., "Journal"], tuple[Any, ...]]:
        # Tune saves its callbacks with its own state; the state of this one is in `trials.json`.
        return Journal, (self._directory.path, self._tuning)

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        values, number = trial.config[VALUES], number_of(trial.trial_id, trial.config)
        known = self._trials.get(number)
        origin = None if trial.checkpoint is None else origin_of(trial.checkpoint)
        if known is None or origin is None:
            self._trials[number] = Trial(number, values)
            self._notify(number, f"begins: {describe(values)}")
        elif origin[0] != number:
            # A resumed search may start the trial again from a takeover that is already recorded.
            if known.takeovers[-1:] != [origin]:
                known.takeovers.append(origin)
            self._notify(number, f"continues from trial {origin[0]:02d} at {origin[1]:,} steps: {describe(values)}")
        else:
            self._notify(number, f"continues from {origin[1]:,} steps")
        known = self._trials[number]
        known.values, known.state, known.ended, known.error = values, "unfinished", "", ""
        self._write()

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        known = self._trials[number_of(trial.trial_id, trial.config)]
        metric, mode = self._tuning.metric, self._tuning.mode
        if ENDED not in result:
            known.report(result[STEPS], result[metric], mode)
            self._notify(known.number, f"at {result[STEPS]:,} steps: {metric} {result[metric]:.4g}")
        else:
            if metric in result:
                known.report(result[AT_STEPS], result[metric], mode)
            known.environment_steps, known.ended = result[TOTAL_STEPS], result[ENDED]
        self._write()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        known = self._trials[number_of(trial.trial_id, trial.config)]
        known.state = "done" if known.ended else "stopped early"
        best = "" if known.best is None else f", best {self._tuning.metric} {known.best:.4g}"
        self._notify(known.number, f"{known.state} at {known.environment_steps:,} steps{best}")
        self._write()

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        number = number_of(trial.trial_id, trial.config)
        known = self._trials.setdefault(number, Trial(number, trial.config[VALUES]))
        # Tune's own copy of the text is not available yet: it is read from the storage, which is synchronized later.
        error = pathlib.Path(trial.error_file).read_text()
        known.state, known.error = "failed", _last_line(error)
        log = self._directory.run(number).log("error")
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(error)
        self._notify(number, f"failed: {known.error}")
        self._write()

    def _notify(self, number: int, text: str) -> None:
        self._console.print(f"trial {number:02d} {text}")

    def _write(self) -> None:
        self._directory.write_trials(self._trials[number] for number in sorted(self._trials))


def _last_line(error: str) -> str:
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return lines[-1].removeprefix("callboard.errors.CallboardError: ") if lines else "without a word"
