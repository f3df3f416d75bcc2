"""Values of trials chosen by Optuna's sampler, a tree-structured Parzen estimator, through Ray Tune."""

from typing import Any

import optuna
from ray.tune.search.optuna import OptunaSearch

from .search_definition import Tuning
from .search_space import Choice, Domain, Range, SearchSpace
from .trial import NUMBER, VALUES


class NumberedOptuna(OptunaSearch):
    """Tune's `OptunaSearch` that numbers its trials and rounds values as `SearchSpace` does.

    A trial that was stopped early counts with its last value, as one that is done.
    """

    def __init__(self, space: SearchSpace, metric: str, mode: str, seed: int):
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        distributions = {key: _distribution(domain) for key, domain in space.domains.items()}
        super().__init__(space=distributions, metric=metric, mode=mode, seed=seed)
        self._domains = space
        self._count = 0
        self._last: dict[str, float] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        super().suggest(trial_id)
        chosen = self._ot_trials[trial_id].params
        values = {
            # Optuna's categories are plain values; a choice may be a list.
            key: domain.options[chosen[key]] if isinstance(domain, Choice) else domain.clip(chosen[key])
            for key, domain in self._domains.domains.items()
        }
        self._count += 1
        return {VALUES: values, NUMBER: self._count - 1}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if self.metric in result:
            self._last[trial_id] = result[self.metric]
            super().on_trial_result(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        value = None if error else self._last.pop(trial_id, None)
        super().on_trial_complete(trial_id, None if value is None else {self.metric: value}, error)


def make_sampler(tuning: Tuning) -> NumberedOptuna:
    """Returns the sampler of a search."""
    return NumberedOptuna(tuning.space(), tuning.metric, tuning.mode, tuning.settings["seed"])


def _distribution(domain: Domain) -> Any:
    if isinstance(domain, Choice):
        return optuna.distributions.CategoricalDistribution(range(len(domain.options)))
    assert isinstance(domain, Range)
    if domain.kind == "randint":
        return optuna.distributions.IntDistribution(int(domain.low), int(domain.high) - 1)
    return optuna.distributions.FloatDistribution(domain.low, domain.high, log=domain.kind == "loguniform")
