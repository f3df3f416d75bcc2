"""Studies: their cells, the studies that ship, and mistakes in one line."""

import pytest
import yaml

from callboard.errors import CallboardError
from callboard.studies.comparison import study_definition
from callboard.studies.comparison.study_definition import STUDIES, cells_of, parse_study, read_study, study_names

SMALL = {"agents": ["impala"], "environments": ["CartPole-v1"]}


def cells(**content):
    return cells_of(parse_study({**SMALL, **content}))


def test_a_study_is_every_combination_of_its_lists():
    found = cells(
        agents=["impala", {"recipe": "ppo-cartpole", "settings": {"agent.epochs": 3}}],
        environments=["CartPole-v1", {"env": "Acrobot-v1", "name": "acrobot", "settings": {"max_steps": 5000}}],
        variants=[{"name": "few", "settings": {"actors": 1}}, {"name": "many", "settings": {"actors": 4}}],
        grid={"agent.optimizer.learning_rate": [0.1, 0.01]},
        settings={"envs_per_actor": 8, "agent": {"discount": 0.5}},
        seeds=[4, 5],
        launcher="inline",
    )
    assert len(found) == 16 and all(list(cell.seeds) == [4, 5] for cell in found)
    assert found[0].name == "impala-CartPole-v1-few-learning_rate_0.1"
    assert found[0].variant == "impala, few, learning_rate 0.1" and found[0].options == ("--launcher", "inline")
    last = found[-1]
    assert (last.name, last.env) == ("ppo-cartpole-acrobot-many-learning_rate_0.01", "Acrobot-v1")
    assert last.recipe["agent"]["epochs"] == 3 and last.recipe["agent"]["discount"] == 0.5
    assert last.recipe["agent"]["optimizer"]["learning_rate"] == 0.01 and last.recipe["agent"]["unroll_length"] == 32
    settings = ("actors", "envs_per_actor", "max_steps", "evaluate_every")
    assert [last.recipe[name] for name in settings] == [4, 8, 5000, 10_000]
    assert "seed" not in last.recipe and "run_dir" not in last.recipe


def test_the_nearest_list_decides_on_launcher_and_seeds():
    found = cells(
        agents=[{"agent": "impala", "seeds": [7], "launcher": "threads"}, "ppo"],
        variants=[{"name": "x"}, {"name": "y", "seeds": [9], "launcher": "inline"}],
    )
    assert [(list(cell.seeds), cell.options[1]) for cell in found] == [
        ([7], "threads"),
        ([9], "inline"),
        ([1, 2, 3], "processes"),
        ([9], "inline"),
    ]
    given = parse_study({**SMALL, "variants": [{"seeds": [9]}]}).with_seeds([1, 2])
    assert [list(cell.seeds) for cell in cells_of(given)] == [[1, 2]]


def test_options_of_another_environment_are_not_kept():
    recipe = {"recipe": "ppo-procgen-fruitbot", "settings": {"agent.network.torso": "mlp"}}
    (cell,) = cells(agents=[recipe])
    assert "env_options" not in cell.recipe and cell.env == "CartPole-v1"
    (cell,) = cells_of(parse_study({"agents": [recipe], "settings": {"env_options": {"num_levels": 5}}}))
    assert cell.recipe["env_options"] == {"num_levels": 5, "distribution_mode": "easy"}


def test_options_and_launcher_options_are_those_of_all_runs():
    study = parse_study({**SMALL, "launcher": "ray", "launcher_options": {"ray_address": "local", "ray_wait": 5}})
    (cell,) = cells_of(study, ["--max-steps", "77"])
    assert cell.recipe["max_steps"] == 77
    assert cell.options == ("--launcher", "ray", "--ray-address=local", "--ray-wait=5")


@pytest.mark.parametrize(
    "values, options",
    [("[1000000, 1.0e+6]", []), ("[2000, 2000]", []), ("[2000, 3000]", ["--max-steps", "4000"])],
)
def test_values_of_a_grid_that_make_the_same_runs_are_refused(values, options):
    study = parse_study({**SMALL, "grid": yaml.safe_load(f"max_steps: {values}")})
    with pytest.raises(
        CallboardError, match=r"'impala, max_steps \d+' and 'impala, max_steps [\d.]+' are the same runs"
    ):
        cells_of(study, options)


def test_an_environment_may_name_its_agents():
    found = cells(
        agents=["impala", {"recipe": "ppo-cartpole", "name": "mine"}],
        environments=["Acrobot-v1", {"env": "CartPole-v1", "agents": ["mine"], "settings": {"max_steps": 7000}}],
    )
    assert [cell.name for cell in found] == ["impala-Acrobot-v1", "mine-Acrobot-v1", "mine-CartPole-v1"]
    assert found[-1].recipe["max_steps"] == 7000
    with pytest.raises(CallboardError, match="unknown agent of CartPole-v1 'impal'; did you mean 'impala'?"):
        cells(environments=[{"env": "CartPole-v1", "agents": ["impal"]}])


@pytest.mark.parametrize(
    "content, options, what",
    [
        ({"grid": {"agent": ["impala", "ppo"]}}, [], "agent"),
        ({"grid": {"agent.name": ["impala", "ppo"]}}, [], "agent"),
        ({"variants": [{"name": "x", "settings": {"agent": "ppo"}}]}, [], "agent"),
        ({"variants": [{"name": "x", "settings": {"agent": {"name": "ppo"}}}]}, [], "agent"),
        ({"settings": {"agent": {"name": "ppo", "discount": 0.5}}}, [], "agent"),
        ({"agents": [{"recipe": "ppo-cartpole", "settings": {"agent": "impala"}}]}, [], "agent"),
        ({}, ["--agent", "ppo"], "agent"),
        ({"variants": [{"name": "x", "settings": {"env": "Acrobot-v1"}}]}, [], "env"),
        ({"grid": {"env": ["CartPole-v1", "Acrobot-v1"]}}, [], "env"),
        ({"environments": [{"env": "CartPole-v1", "settings": {"env": "Acrobot-v1"}}]}, [], "env"),
        ({"settings": {"env": "Acrobot-v1"}}, [], "env"),
        ({}, ["--env", "Acrobot-v1"], "env"),
        ({"grid": {"seed": [1, 2]}}, [], "seed"),
        ({}, ["--seed=5"], "seed"),
        ({"agents": [{"agent": "impala", "settings": {"run_dir": "x"}}]}, [], "run_dir"),
    ],
)
def test_no_setting_gives_a_combination_what_its_name_does_not_say(content, options, what):
    with pytest.raises(CallboardError, match=f"(^|: ){what} is not a setting of a study: .*; (list it in|see)"):
        cells_of(parse_study({**SMALL, **content}), options)


@pytest.mark.parametrize("only", ["", "discount_0.9-"])
def test_a_study_that_is_too_large_is_refused_before_its_combinations_are_made(only, monkeypatch):
    monkeypatch.setattr(study_definition, "read_recipe", None)
    monkeypatch.setattr(study_definition, "parse_settings", None)
    many = [0.5 + number / 10_000 for number in range(3000)]
    study = parse_study({**SMALL, "grid": {"agent.discount": many, "agent.entropy_cost": many}})
    with pytest.raises(CallboardError, match="the matrix has more than 10,000 runs; shorten its lists"):
        cells_of(study, only=only)
    study = parse_study({**SMALL, "grid": {"agent.discount": many}, "seeds": [1, 2, 3, 4]})
    with pytest.raises(CallboardError, match="the matrix has more than 10,000 runs; shorten its lists"):
        cells_of(study, only=only)


def test_an_environment_that_no_combination_is_named_after_is_a_setting():
    study = parse_study({"agents": ["impala"], "grid": {"env": ["CartPole-v1", "Acrobot-v1"]}})
    assert [(cell.variant, cell.env) for cell in cells_of(study)] == [
        ("impala, env CartPole-v1", "CartPole-v1"),
        ("impala, env Acrobot-v1", "Acrobot-v1"),
    ]
    (cell,) = cells_of(parse_study({"agents": ["impala"]}), ["--env", "CartPole-v1"])
    assert cell.env == "CartPole-v1"


def test_an_agent_with_a_recipe_of_another_keeps_its_own_settings_and_has_a_name():
    other = {"agent": "impala", "recipe": "ppo-cartpole", "settings": {"agent.discount": 0.5}}
    (cell,) = cells(agents=[{**other, "name": "mine"}])
    assert cell.recipe["agent"] == {"name": "impala", "discount": 0.5} and cell.recipe["stop_return"] == 500
    with pytest.raises(CallboardError, match="the recipe is one of ppo: give the entry of impala a name"):
        cells(agents=[other])
    (cell,) = cells(agents=[{"agent": "ppo", "recipe": "ppo-cartpole"}])
    assert cell.name == "ppo-cartpole-CartPole-v1" and cell.recipe["agent"]["unroll_length"] == 32


def test_only_some_cells_are_made():
    study = parse_study({**SMALL, "environments": ["CartPole-v1", "Acrobot-v1"]})
    assert [cell.name for cell in cells_of(study, only="Acro")] == ["impala-Acrobot-v1"]
    with pytest.raises(CallboardError, match="the matrix has no runs whose name contains 'Pong'"):
        cells_of(study, only="Pong")


def test_no_environment_is_that_of_the_recipe():
    (cell,) = cells_of(parse_study({"agents": [{"recipe": "ppo-acrobot"}]}))
    assert (cell.name, cell.env) == ("ppo-acrobot", "Acrobot-v1")


@pytest.mark.parametrize("name", [path.stem for path in STUDIES.glob("*.yaml")])
def test_studies_that_ship_are_valid_and_described(name):
    study = read_study(name)
    assert study.description and name in study_names()
    assert cells_of(study)


@pytest.mark.parametrize(
    "content, message",
    [
        ("[]", "a study must hold settings"),
        ("env: CartPole-v1", "unknown key 'env'; did you mean 'environments'?"),
        ("agent: [impala]", "unknown key 'agent'; did you mean 'agents'?"),
        ("seeds: [1]", "a study needs agents"),
        ("agents: impala", "agents must be a list"),
        ("agents: []", "the matrix has no runs: agents is empty"),
        ("agents: [impala]\nseeds: []", "the matrix has no runs: seeds is empty"),
        ("agents: [impala]\nenvironments: []", "the matrix has no runs: environments is empty"),
        ("agents: [impala]\nvariants: []", "the matrix has no runs: variants is empty"),
        ("agents: [impala]\ngrid: {actors: []}", "the matrix has no runs: grid.actors is empty"),
        ("agents: [{agent: impala, seeds: []}]\nenvironments: [CartPole-v1]", "the matrix has no runs: seeds is empty"),
        ("agents: [impal]\nenvironments: [CartPole-v1]", "impal-CartPole-v1: unknown agent 'impal'; did you mean"),
        ("agents: [impala]\nenvironments: [CartPol-v1]", "did you mean 'CartPole-v1'?"),
        ("agents: [impala]", "impala: name an environment"),
        ("agents: [{recpie: ppo-cartpole}]", "unknown key 'agents.recpie'; did you mean 'agents.recipe'?"),
        ("agents: [{recipe: ppo-cartpol}]", "unknown recipe 'ppo-cartpol'; did you mean 'ppo-cartpole'?"),
        ("agents: [{name: x}]", "needs agent or recipe"),
        ("agents: [{}]", "agents: an entry of agents needs agent or recipe"),
        ("agents: [5]", "agents, entry 1, must be a name, or settings by name, not 5"),
        ("agents: [impala]\nenvironments: [CartPole-v1, [x]]", "environments, entry 2, must be a name, or settings"),
        ("agents: [impala]\nvariants: [fast]", "variants, entry 1, must be settings by name, not 'fast'"),
        (
            "agents: [impala]\nenvironments: [{env: CartPole-v1, agents: []}]",
            "the agents of every environment are empty",
        ),
        (
            "agents: [impala]\nenvironments: [CartPole-v1]\nreport: {score_ranges: {CartPol-v1: [0, 5]}}",
            "unknown environment in report.score_ranges 'CartPol-v1'; did you mean 'CartPole-v1'?",
        ),
        (
            "agents: [impala]\nenvironments: [CartPole-v1]\n"
            "grid: {agent.optimizer.learning_rate: [1.0e-3], agent.optimizer: [{learning_rate: 1.0e-4}]}",
            "grid.agent.optimizer and grid.agent.optimizer.learning_rate set the same",
        ),
        (
            "agents: [impala]\nenvironments: 5",
            "environments must be a list of settings by name, such as",
        ),
        (
            "agents: [impala]\nenvironments: {env: CartPole-v1}",
            "environments must be a list of settings by name, such as",
        ),
        ("agents: [impala]\nenvironments: [{name: x}]", "environments, entry 1, needs env"),
        ("agents: [impala, impala]\nenvironments: [CartPole-v1]", "two combinations are named 'impala-CartPole-v1'"),
        ("agents: [impala]\nenvironments: [CartPole-v1]\nvariants: [{name: a}, {name: A}]", "two combinations are"),
        ("agents: [impala]\nenvironments: [CartPole-v1]\nseeds: [1, 1]", "a seed is given twice in [1, 1]"),
        ("agents: [impala]\nseeds: [-1]", "seeds must be a list of whole numbers"),
        ("agents: [impala]\nseeds: 3", "seeds must be a list of whole numbers"),
        ("agents: [impala]\nenvironments: [CartPole-v1]\nsettings: {actrs: 3}", "unknown key 'actrs'; did you mean"),
        ("agents: [impala]\nenvironments: [CartPole-v1]\nsettings: {seed: 3}", "seed is not a setting of a study"),
        ("agents: [impala]\nenvironments: [CartPole-v1]\ngrid: {actors: [-1]}", "actors must be a whole number"),
        ("agents: [impala]\nenvironments: [CartPole-v1]\nlauncher: inlin", "unknown launcher 'inlin'; did you mean"),
        (
            "agents: [impala]\nenvironments: [CartPole-v1]\nlauncher: inline\nlauncher_options: {ray_wait: 3}",
            "unknown option of launcher inline 'ray_wait'",
        ),
        (
            "agents: [impala]\nlauncher: inline\nenvironments: [CartPole-v1]\nsettings: {learners: 2}",
            "set learners to 1",
        ),
        ("agents: [impala]\nreport: {gaol: 3}", "unknown key 'report.gaol'; did you mean 'report.goal'?"),
        ("agents: [impala]\nreport: {mode: most}", "report.mode must be max or min, not 'most'"),
        ("agents: [impala]\nreport: {metric: score}", "unknown metric 'score'"),
        (
            f"agents: [impala]\nenvironments: [CartPole-v1]\ngrid: {{actors: {list(range(1, 120))}}}\n"
            f"seeds: {list(range(100))}",
            "the matrix has more than 10,000 runs",
        ),
    ],
)
def test_a_mistake_is_one_line_that_names_the_file(content, message, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(content)
    with pytest.raises(CallboardError) as caught:
        cells_of(read_study(str(path)))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_study_that_does_not_exist_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CallboardError, match="unknown study 'ppo-cartpol'; did you mean 'ppo-cartpole'?"):
        read_study("ppo-cartpol")
    (tmp_path / "cut.yaml").write_text("agents: [")
    with pytest.raises(CallboardError, match="cut.yaml is not valid YAML"):
        read_study("cut.yaml")


def test_files_name_agents_and_environments_as_text(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"agents": ["impala"], "environments": ["CartPole-v1"], "report": {"goal": 9}}))
    study = read_study(str(path))
    assert study.agents[0].agent == "impala" and study.environments[0].env == "CartPole-v1"
    assert study.report.goal == 9
