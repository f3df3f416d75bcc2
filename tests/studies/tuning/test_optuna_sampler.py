"""Values from Optuna: their ranges, their numbers, and what it learns from trials."""

import pickle

import pytest

pytest.importorskip("optuna")
pytest.importorskip("ray")

from callboard.studies.tuning.optuna_sampler import make_sampler  # noqa: E402
from callboard.studies.tuning.search_definition import Tuning  # noqa: E402

SEARCH = ["a=loguniform(1e-4,1e-1)", "b=randint(2,5)", "c=choice([1,2],None)", "d=uniform(0,10)"]


@pytest.fixture
def sampler():
    return make_sampler(Tuning({"seed": 3}, SEARCH, metric="score"))


def test_values_are_those_of_the_search_space_and_numbered(sampler):
    for number in range(20):
        found = sampler.suggest(f"id{number}")
        values = found["values"]
        assert found["number"] == number and list(values) == ["a", "b", "c", "d"]
        assert 1e-4 <= values["a"] <= 1e-1 and float(f"{values['a']:.4g}") == values["a"]
        assert values["b"] in (2, 3, 4) and values["c"] in ([1, 2], None) and 0 <= values["d"] <= 10


def test_a_trial_counts_with_its_last_value_also_if_the_last_report_has_none(sampler):
    for number in range(3):
        sampler.suggest(f"id{number}")
    sampler.on_trial_result("id0", {"score": 4.0, "training_iteration": 1})
    sampler.on_trial_result("id0", {"ended": "x", "training_iteration": 2})
    sampler.on_trial_complete("id0", {"ended": "x"})
    sampler.on_trial_complete("id1", None, error=True)
    sampler.on_trial_complete("id2", None)
    states = [(trial.state.name, trial.value) for trial in sampler._ot_study.trials]
    assert states == [("COMPLETE", 4.0), ("FAIL", None), ("PRUNED", None)]


def test_it_continues_as_it_was_saved(sampler, tmp_path):
    for number in range(12):
        values = sampler.suggest(f"id{number}")["values"]
        sampler.on_trial_result(f"id{number}", {"score": values["d"], "training_iteration": 1})
        sampler.on_trial_complete(f"id{number}", {})
    sampler.save(str(tmp_path / "state"))
    again = make_sampler(Tuning({"seed": 3}, SEARCH, metric="score"))
    again.restore(str(tmp_path / "state"))
    assert again.suggest("next")["number"] == 12
    assert pickle.loads(pickle.dumps(again._last)) == {}
