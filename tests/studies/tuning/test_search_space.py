"""`--search`: distributions, their samples, and values that are rejected."""

import numpy as np
import pytest

from callboard.errors import CallboardError
from callboard.studies.tuning.search_space import parse_search, vary_recipe


def draw(text, count=2000):
    return [values["agent.x"] for values in parse_search([f"agent.x={text}"], {}).samples(count, seed=3)]


def test_uniform_is_even_over_its_range():
    values = draw("uniform(-1, 3)")
    counts, _ = np.histogram(values, bins=4, range=(-1, 3))
    assert counts.sum() == 2000
    # Four even parts of 2,000 have 500 each, with a standard deviation of 19.
    assert np.abs(counts - 500).max() < 100


def test_loguniform_is_even_over_orders_of_magnitude():
    values = draw("loguniform(1e-5, 1e-1)")
    counts, _ = np.histogram(np.log10(values), bins=4, range=(-5, -1))
    assert counts.sum() == 2000
    assert np.abs(counts - 500).max() < 100


def test_randint_gives_whole_numbers_without_the_upper_end():
    values = draw("randint(2, 5)", 200)
    assert set(values) == {2, 3, 4}
    assert all(type(value) is int for value in values)


def test_choice_takes_numbers_words_flags_and_lists():
    assert set(draw("choice(0.0, 0.01)", 50)) == {0.0, 0.01}
    assert set(draw("choice(adam, 'rmsprop')", 50)) == {"adam", "rmsprop"}
    assert set(draw("choice(true, False)", 50)) == {True, False}
    assert {tuple(value) for value in draw("choice([32, 32], [64])", 50)} == {(32, 32), (64,)}
    assert set(draw("choice(None, 1.0)", 50)) == set(draw("choice(null, 1.0)", 50)) == {None, 1.0}


def test_numbers_have_four_digits_and_stay_in_their_range():
    for text, low, high in [
        ("uniform(0.123456, 0.123462)", 0.123456, 0.123462),
        ("loguniform(1e-4, 1e-2)", 1e-4, 1e-2),
    ]:
        values = draw(text)
        assert min(values) >= low and max(values) <= high
    assert all(float(f"{value:.3e}") == value for value in values)


@pytest.mark.parametrize(
    "text, moved, expected",
    [
        ("uniform(0.1, 0.9)", 1.08, 0.9),
        ("loguniform(1e-4, 1e-2)", 8e-5, 1e-4),
        ("loguniform(1e-4, 1e-2)", 0.00123456, 0.001235),
        ("randint(2, 5)", 6, 4),
        ("randint(2, 5)", 1, 2),
        ("randint(2, 5)", 3.2, 3),
        ("choice(1, 2)", 2, 2),
    ],
)
def test_what_was_moved_comes_back_into_its_range(text, moved, expected):
    space = parse_search([f"agent.x={text}"], {})
    assert space.clip({"agent.x": moved}) == {"agent.x": expected}


def test_grids_give_all_combinations_each_with_samples_of_its_own():
    space = parse_search(["a=grid(1, 2)", "b=uniform(0, 1)", "c=grid(x, y, z)"], {})
    samples = space.samples(2, seed=1)
    every = [(a, c) for a in (1, 2) for c in ("x", "y", "z")]
    assert [(values["a"], values["c"]) for values in samples] == every * 2
    assert len({values["b"] for values in samples}) == 12 and list(samples[0]) == ["a", "b", "c"]
    assert space.has_grid and not parse_search(["a=choice(1, 2)"], {}).has_grid
    assert space.samples(1, seed=1) == samples[:6]
    tried = []
    space.check(samples[:6], tried.append)
    assert len(tried) == 6 + 2  # The ends of the range of b.


def test_a_seed_always_gives_the_same_samples_and_more_of_them_begin_alike():
    space = parse_search(["agent.a=loguniform(1e-4,1e-2)", "--agent.b-c=choice(1,2,3)"], {})
    assert list(space.domains) == ["agent.a", "agent.b_c"]
    first = space.samples(8, seed=1)
    assert space.samples(8, seed=1) == first == space.samples(16, seed=1)[:8]
    assert space.samples(8, seed=2) != first
    assert len({values["agent.a"] for values in first}) == 8


def test_values_take_the_place_of_settings_and_leave_the_others():
    settings = {"env": "A", "actors": 2, "agent": {"name": "impala", "discount": 0.9}, "env_options": None}
    values = {"agent.optimizer.learning_rate": 0.1, "actors": 4, "env_options.num_levels": 5}
    assert vary_recipe(settings, values) == {
        "env": "A",
        "actors": 4,
        "agent": {"name": "impala", "discount": 0.9, "optimizer": {"learning_rate": 0.1}},
        "env_options": {"num_levels": 5},
    }
    assert settings["agent"] == {"name": "impala", "discount": 0.9}


def test_a_setting_of_one_value_has_no_fields():
    with pytest.raises(CallboardError, match="--search actors.x: actors is one value and has no fields"):
        vary_recipe({"actors": 2}, {"actors.x": 1})


def test_every_sample_and_every_extreme_is_tried():
    space = parse_search(["a=uniform(1, 2)", "b=choice(x, y, z)"], {})
    tried = []
    space.check([{"a": 1.5, "b": "x"}, {"a": 1.25, "b": "y"}], tried.append)
    assert tried == [
        {"a": 1.5, "b": "x"},
        {"a": 1.25, "b": "y"},
        {"a": 1.0, "b": "x"},
        {"a": 2.0, "b": "x"},
        {"a": 1.5, "b": "x"},
        {"a": 1.5, "b": "y"},
        {"a": 1.5, "b": "z"},
    ]


@pytest.mark.parametrize(
    "text, message",
    [
        ("agent.x", "write KEY=DISTRIBUTION"),
        ("agent.x=0.1", "write KEY=DISTRIBUTION"),
        ("=choice(1, 2)", "names no setting; write KEY=DISTRIBUTION"),
        ("agent.=choice(1, 2)", "names no setting; write KEY=DISTRIBUTION"),
        (".x=choice(1, 2)", "names no setting; write KEY=DISTRIBUTION"),
        ("agent.x=uniform(1)", "uniform takes two numbers"),
        ("agent.x=uniform(1, 2, 3)", "uniform takes two numbers"),
        ("agent.x=uniform(low, 2)", "uniform takes two numbers"),
        ("agent.x=uniform(2, 1)", "2 must be less than 1"),
        ("agent.x=uniform(1, 1e999)", "uniform takes two numbers"),
        ("agent.x=uniform(-1e308, 1e308)", "uniform takes two numbers from -1e+300 to 1e+300"),
        (f"agent.x=uniform(0, 1{'0' * 400})", "uniform takes two numbers"),
        (f"agent.x=randint(0, 1{'0' * 24})", "randint takes two whole numbers from"),
        ("agent.x=uniform(False, True)", "uniform takes two numbers"),
        ("agent.x=loguniform(0, 1)", "needs numbers above 0, not 0"),
        ("agent.x=randint(1.5, 3)", "randint takes two whole numbers"),
        ("agent.x=choice()", "has nothing to choose from"),
        ("agent.x=logunifrom(1, 2)", "unknown distribution 'logunifrom'; did you mean 'loguniform'?"),
        ("agent.x=zipf(1, 2)", "choose from uniform, loguniform, randint, choice, grid"),
        ("agent.x=grid()", "has nothing to choose from"),
        ("agent.x=grid(1, 2, 1)", "has a value twice"),
        ("agent.x=choice(__import__('os').getcwd())", "must be numbers, words, or lists of them"),
        ("agent.x=choice(open('x'))", "must be numbers, words, or lists of them"),
        ("agent.x=choice(b'x')", "must be numbers, words, or lists of them"),
        ("agent.x=choice(1j)", "must be numbers, words, or lists of them"),
        ("agent.x=choice(1,,2)", "must be numbers, words, or lists of them"),
        ("run_dir=choice(a, b)", "--search run_dir is not possible: each has its own"),
        ("run-dir=choice(a, b)", "--search run_dir is not possible: each has its own"),
    ],
)
def test_what_is_not_understood_is_refused_in_one_line(text, message):
    with pytest.raises(CallboardError) as caught:
        parse_search([text], {"run_dir": "each has its own"})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_setting_is_searched_once():
    with pytest.raises(CallboardError, match="--search agent.x is given twice"):
        parse_search(["agent.x=uniform(0, 1)", "agent.x=uniform(1, 2)"], {})
    with pytest.raises(CallboardError, match="name what to vary: --search"):
        parse_search([], {})


def test_a_value_has_a_place_only_in_its_own_domain():
    space = parse_search(["a=uniform(0,1)", "b=randint(1,4)", "c=choice(x,true,(1,2))"], {})
    values = {"a": 0.5, "b": 3, "c": [1, 2]}
    space.check_recorded(values)
    assert [space.domains[key].place(value) for key, value in values.items()] == [0.5, 3.0, 2]
    for wrong in ({"a": "x"}, {"a": 1.5}, {"a": True}, {"b": 2.5}, {"b": 9}, {"c": 1}, {"c": {}}, {"d": 1}):
        with pytest.raises(ValueError):
            space.check_recorded({**values, **wrong})
    with pytest.raises(ValueError):
        space.check_recorded({"a": 0.5})
