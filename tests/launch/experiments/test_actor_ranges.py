"""A range for the number of actors: how it is given, and what refuses it."""

import pytest

from callboard.agents.impala import Impala
from callboard.agents.ppo import Ppo
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.experiment_checks import check_node_counts
from callboard.launch.experiments.run_checks import check_experiment, check_settings
from callboard.launch.experiments.settings import parse_experiment, read_experiment, write_experiment
from callboard.launch.launchers.registry import LAUNCHERS, make_launcher


def experiment(**settings):
    return Experiment(settings.pop("agent", Impala()), env="CartPole-v1", **settings)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("2..20", (20, 2)), ("3..3", (3, 3)), (5, (5, None)), ("5", (5, None)), (0, (0, None)), ("1..10000", (10_000, 1))],
)
def test_a_range_sets_the_most_and_the_fewest(given, expected):
    made = experiment(actors=given)
    assert (made.actors, made.min_actors) == expected
    options = ["--env", "CartPole-v1", "--actors", str(given)]
    parsed = parse_experiment("impala", {}, options)
    assert (parsed.actors, parsed.min_actors) == expected
    from_recipe = parse_experiment("impala", {"env": "CartPole-v1", "actors": given}, [])
    assert (from_recipe.actors, from_recipe.min_actors) == expected


@pytest.mark.parametrize(
    "given", ["20..2", "2..", "..20", "2...20", "a..b", "2..20..30", "-2..20", "2.5..20", -1, 2.5, True]
)
def test_others_are_refused_in_one_line(given):
    with pytest.raises(
        CallboardError, match="actors must be a whole number from 0 to 10,?000 or a range such as 2..20"
    ):
        experiment(actors=given)
    with pytest.raises(CallboardError, match="actors must be .* or a range such as 2..20, not"):
        parse_experiment("impala", {}, ["--env", "CartPole-v1", "--actors", str(given)])


@pytest.mark.parametrize("given", ["0..3", "1..20000", "0..0"])
def test_ends_out_of_range_are_refused(given):
    with pytest.raises(CallboardError, match="actors must be"):
        check_settings(experiment(actors=given))


def test_it_is_kept_with_the_run(tmp_path):
    write_experiment(experiment(actors="2..20"), tmp_path / "experiment.yaml")
    again = read_experiment(tmp_path)
    assert (again.actors, again.min_actors) == (20, 2)
    changed = read_experiment(tmp_path, ["--actors", "4..8"])
    assert (changed.actors, changed.min_actors) == (8, 4)
    assert read_experiment(tmp_path, ["--actors", "6", "--min-actors", "null"]).min_actors is None


@pytest.mark.parametrize("name", [name for name in LAUNCHERS if name not in ("hosts", "ray")])
def test_launchers_that_start_all_actors_at_once_refuse_a_range(name):
    with pytest.raises(CallboardError) as raised:
        make_launcher(name).check(experiment(actors="2..20"))
    assert "starts all actors at once: set actors to a number, not 2..20" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"agent": Ppo()}, "ppo learns from the same number of sequences of every actor"),
        ({"replay_shards": 3}, "set replay_shards to at most 2"),
    ],
)
def test_what_needs_every_actor_refuses_a_range(settings, problem):
    with pytest.raises(CallboardError, match=problem):
        check_experiment(experiment(**{"actors": "2..20", **settings}))


def test_the_places_of_a_policy_server_are_a_number():
    with pytest.raises(CallboardError, match="give a number of actors"):
        given = experiment(actors="2..20", policy_server="127.0.0.1:8000")
        check_node_counts(given, given, given)


def test_a_range_is_accepted_where_actors_are_alike():
    layouts = check_experiment(experiment(actors="2..20"))
    assert layouts.whole.actors == 20, "slots and exploration are those of the most"
