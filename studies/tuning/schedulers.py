"""Schedulers of Ray Tune that know, when a search is resumed, what its trials have reported before."""

import functools
import pathlib
from typing import Any

import numpy as np
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, PopulationBasedTraining

from .records import Trial, TuneDirectory
from .search_definition import Tuning
from .search_space import Choice, SearchSpace
from .trial import ENDED, STEPS, VALUES, trial_number


def make_scheduler(tuning: Tuning, directory: TuneDirectory) -> Any:
    """Returns the scheduler of a search; with a directory that has trials already, it knows their reports."""
    if tuning.scheduler == "asha":
        return ResumableAsha(
            directory=str(directory.path),
            max_t=tuning.max_steps,
            grace_period=tuning.first_rung,
            reduction_factor=tuning.reduction_factor,
        )
    if tuning.scheduler == "pbt":
        space = tuning.space()
        return ResumablePbt(
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


class ResumableAsha(ASHAScheduler):
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
        known = _known(self._directory, trial)
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


class ResumablePbt(PopulationBasedTraining):
    """Population based training (Jaderberg et al. 2017, https://arxiv.org/abs/1711.09846).

    When a search is resumed, each trial's last decision, score and checkpoint are restored.
    """

    def __init__(self, directory: str, **settings: Any):
        super().__init__(**settings)
        self._directory = directory

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        super().on_trial_add(tune_controller, trial)
        known = _known(self._directory, trial)
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


def _known(directory: str, trial: Any) -> Trial | None:
    """Returns what the directory of a search has of a trial; None if it is new."""
    return TuneDirectory(pathlib.Path(directory)).read_trials().get(trial_number(trial.trial_id, trial.config))


def _mutations(space: SearchSpace, seed: int) -> dict[str, Any]:
    generator = np.random.default_rng([seed, 1])
    return {
        key: list(domain.options) if isinstance(domain, Choice) else functools.partial(domain.sample, generator)
        for key, domain in space.domains.items()
    }


def _into_ranges(config: dict[str, Any], space: SearchSpace) -> dict[str, Any]:
    return {**config, VALUES: space.clip(config[VALUES])}
