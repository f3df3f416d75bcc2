"""Zoos: policies are pushed, listed, taken and evaluated again; files of strangers run nothing."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import yaml
from untrained_runs import DEFAULTS, write_run

from callboard.agents.agent_names import agent_name
from callboard.cli.command import main
from callboard.launch.experiments.settings import read_experiment
from callboard.launch.run_directory.remote_storage import Storage
from callboard.studies.zoo.zoo_policies import CARD, FILES, find_policies, parse_card

SHIPPED = pathlib.Path(__file__).resolve().parents[3] / "benchmarks" / "zoo"
OF_EXTRAS = {"LunarLander": "Box2D", "MinAtar/": "minatar", "bsuite:": "bsuite", "dm_control:": "dm_control"}
"""Beginnings of environments, and the package that each needs."""
POLICIES = sorted(path.parent.name for path in SHIPPED.glob(f"callboard_zoo/*/{CARD}"))


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    """A zoo with one policy, pushed from the better of two runs."""
    folder = tmp_path_factory.mktemp("zoo")
    for seed in (1, 2):
        _, run = write_run(folder / "runs" / f"seed-{seed}", options=(*DEFAULTS, f"--seed={seed}"))
        rows = [
            {"environment_steps": steps, "elapsed_seconds": steps / 100, "learner_steps": steps}
            | {"evaluator/return": 3.5, "evaluator/environment_steps": steps, "evaluator/learner_step": steps}
            for steps in (100, 200)
        ]
        run.metrics.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    arguments = ["push", str(folder / "runs"), f"file://{folder}/zoo", "--episodes", "4", "--name", "tiny"]
    assert main(["zoo", *arguments]) == 0
    return folder / "zoo"


@pytest.mark.slow("daily")
def test_a_pushed_policy_is_listed_with_its_score_and_curve(zoo, capsys):
    assert main(["zoo", "list", "--from", str(zoo), "--json"]) == 0
    (policy,) = (one for one in json.loads(capsys.readouterr().out) if one["zoo"] == str(zoo))
    assert policy["name"] == "tiny" and policy["agent"] == "impala" and policy["env"] == "CartPole-v1"
    assert policy["mean"] == 7 and policy["std"] == 0 and policy["episodes"] == 4
    assert policy["seed"] == 1 and policy["steps"] == 200 and policy["curve"] == [[100, 3.5], [200, 3.5]]
    assert main(["zoo", "list", "--from", str(zoo)]) == 0
    assert "tiny  impala  CartPole-v1  200    7.0 ± 0.0" in capsys.readouterr().out
    assert "run_dir" not in yaml.safe_load((zoo / "tiny" / "experiment.yaml").read_text())


@pytest.mark.slow("daily")
def test_a_policy_is_taken_as_a_run_that_commands_take(zoo, tmp_path, capsys):
    assert main(["zoo", "get", "tiny", str(tmp_path / "taken"), "--from", str(zoo)]) == 0
    assert main(["evaluate", str(tmp_path / "taken"), "--episodes", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["mean"] == 7
    assert main(["zoo", "get", "tiny", str(tmp_path / "taken"), "--from", str(zoo)]) == 2
    assert "taken is not empty; name a new directory" in capsys.readouterr().err
    assert main(["train", "--resume", "--run-dir", str(tmp_path / "taken"), "--max-steps", "900000"]) == 2
    assert f"begin a new run in another directory with --init-from {tmp_path}/taken@best" in capsys.readouterr().err


def test_a_zoo_at_a_url(zoo, tmp_path, capsys):
    storage = Storage("memory://zoo/tiny")
    for file in (*FILES, CARD):
        storage.store(file, zoo / "tiny")
    assert main(["zoo", "get", "tiny", str(tmp_path / "taken"), "--from", "memory://zoo"]) == 0
    assert "from memory://zoo" in capsys.readouterr().out
    assert (tmp_path / "taken" / CARD).read_bytes() == (zoo / "tiny" / CARD).read_bytes()
    storage.remove("environment.json")
    assert main(["zoo", "get", "tiny", str(tmp_path / "new"), "--from", "memory://zoo"]) == 2
    assert "has no environment.json" in capsys.readouterr().err and not (tmp_path / "new").exists()


@pytest.mark.slow("daily")
@pytest.mark.parametrize("recorded, code, said", [(7.0, 0, "as recorded"), (9.0, 1, "they differ by more than 0.09")])
def test_an_evaluation_is_compared_with_the_recorded_score(recorded, code, said, zoo, tmp_path, capsys):
    shutil.copytree(zoo, tmp_path / "zoo")
    card = tmp_path / "zoo" / "tiny" / CARD
    card.write_text(json.dumps({**json.loads(card.read_text()), "mean": recorded}))
    assert main(["zoo", "evaluate", "tiny", "--from", str(tmp_path / "zoo")]) == code
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["get", "tony", "new", "--from", "ZOO"], "unknown policy 'tony'; did you mean 'tiny'?"),
        (["get", "tiny", "--from", "ZOO"], "write callboard zoo get NAME DIR"),
        (["list", "--from", "nowhere"], "there is no zoo in nowhere: name a folder or a URL"),
        (["list", "--episodes", "3"], "--episodes is not for callboard zoo list: leave it out"),
        (["push", "nowhere", "ZOO"], "there is no run in nowhere"),
        (["push", "s3://bucket/run", "ZOO"], "zoo push takes runs of this machine"),
        (["push", "RUNS", "ZOO", "--name", "tiny"], "there is a policy tiny in "),
        (["push", "RUNS@latest", "ZOO"], "a zoo takes the weights with the best evaluation: name "),
        (["push", "RUNS", "ZOO", "--name", "../tiny"], "a policy cannot be named '../tiny'"),
        (["push", "RUNS", "ZOO", "--name", 101 * "a"], "aa': at most 100 letters, digits, dots, dashes and"),
        (["push", "RUNS", "ZOO", "--episodes", "0"], "--episodes must be from 1 to 100,000, not 0"),
        (["push", "RUNS", "ZOO", "--episodes", "100001"], "--episodes must be from 1 to 100,000, not 100001"),
        (["push", "RUNS", "ZOO", "--name", ""], "a policy cannot be named ''"),
        (["push", "RUNS", ""], "ZOO is empty"),
        (["push", "", "ZOO"], "RUN is empty"),
        (["get", "tiny", "", "--from", "ZOO"], "DIR is empty"),
        (["get", "tiny", "FILE", "--from", "ZOO"], "is a file; name a new directory"),
        (["list", "--from", ""], "--from is empty"),
        (["list", "--from", "file:///nowhere"], "there is no zoo in file:///nowhere: name a folder or a URL"),
        (["list", "--from", "memory://nowhere"], "there is no zoo in memory://nowhere: name a folder or a URL"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, zoo, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runs = str(zoo.parent / "runs")
    places = {"ZOO": str(zoo), "RUNS": runs, "RUNS@latest": f"{runs}/seed-1@latest", "FILE": str(zoo / "tiny" / CARD)}
    assert main(["zoo", *(places.get(word, word) for word in arguments)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: (run / "environment.json").unlink(), "has no environment.json: resume the run, which writes it"),
        (lambda run: (run / "environment.json").write_text("{"), "environment.json cannot be read"),
        (lambda run: (run / "checkpoints/best.npz").write_bytes(b"PK"), "best.npz is damaged; replace it by a copy"),
        (lambda run: np.savez(run / "checkpoints/best.npz", names=[]), "best.npz has no mean return; replace it by a"),
        (lambda run: (run.parent / "zoo").touch(), "zoo cannot be written: Not a directory; name another place"),
    ],
)
def test_what_cannot_be_pushed_is_refused_before_its_evaluation(damage, message, tmp_path, monkeypatch, capsys):
    _, run = write_run(tmp_path / "run", options=DEFAULTS)
    row = {"environment_steps": 100, "elapsed_seconds": 1.0, "learner_steps": 1, "evaluator/return": 3.5}
    run.metrics.write_text(json.dumps(row | {"evaluator/environment_steps": 100, "evaluator/learner_step": 1}) + "\n")
    damage(run.path)
    monkeypatch.setattr("callboard.studies.zoo.zoo_scores.evaluate_run", lambda *_: pytest.fail("it was evaluated"))
    assert main(["zoo", "push", str(run.path), str(tmp_path / "zoo")]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("zoo/*"))


@pytest.mark.parametrize("file", ["environment.json", "checkpoints/best.npz"])
def test_a_damaged_policy_is_named_as_in_its_zoo(file, zoo, tmp_path, capsys):
    shutil.copytree(zoo / "tiny", tmp_path / "zoo" / "tiny")
    (tmp_path / "zoo" / "tiny" / file).write_text("{")
    for arguments in (["get", "tiny", str(tmp_path / "new")], ["evaluate", "tiny"]):
        assert main(["zoo", *arguments, "--from", str(tmp_path / "zoo")]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert re.fullmatch(f"callboard: {tmp_path}/zoo/tiny/{file} is damaged .*; replace it by a copy", line)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: "", "it names no agent or no environment"),
        (lambda text: "{[}\0", "special characters are not allowed"),
        (lambda text: "- 1", "it names no agent or no environment"),
        (lambda text: "!!python/object/apply:os.system [x]", "is not one of plain values"),
        (
            lambda text: text.replace("CartPole-v1", "Acrobot-v1"),
            "env is CartPole-v1 in its policy.json, and Acrobot-v1",
        ),
        (lambda text: text.replace("name: impala", "name: sac"), "agent is impala in its policy.json, and sac"),
    ],
)
@pytest.mark.parametrize("beginning", ["", "file://"])
def test_settings_that_are_damaged_or_of_another_policy_are_refused(damage, message, beginning, zoo, tmp_path, capsys):
    shutil.copytree(zoo, tmp_path / "zoo")
    settings = tmp_path / "zoo" / "tiny" / "experiment.yaml"
    settings.write_text(damage(settings.read_text()))
    for arguments in (["get", "tiny", str(tmp_path / "new")], ["evaluate", "tiny"]):
        assert main(["zoo", *arguments, "--from", f"{beginning}{tmp_path}/zoo"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{beginning}{tmp_path}/zoo/tiny" in line and "experiment.yaml" in line and message in line
        assert "replace it by a copy" in line and not (tmp_path / "new").exists()
    assert main(["zoo", "list", "--from", f"{beginning}{tmp_path}/zoo"]) == 0
    assert (message in capsys.readouterr().err) != bool(beginning)  # At a URL, only cards are read for a list.


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run that has been evaluated, whose evaluations for a zoo are not played."""
    _, run = write_run(tmp_path / "runs" / "one", options=DEFAULTS)
    _write_curve(run, 2)
    monkeypatch.setattr("callboard.studies.zoo.zoo_scores._score", lambda *_: (7.0, 0.0))
    return run


def _write_curve(run, points, **counts):
    rows = [
        {"environment_steps": 9 * n, "elapsed_seconds": float(n), "learner_steps": n, "evaluator/return": 3.5}
        | {"evaluator/environment_steps": 9 * n, "evaluator/learner_step": n, **counts}
        for n in range(1, points + 1)
    ]
    run.metrics.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def _push(run, zoo):
    """Pushes a run, and returns the card and the settings of the policy that the zoo then offers."""
    assert main(["zoo", "push", str(run.path), str(zoo), "--name", "x"]) == 0
    (policy,) = (one for one in find_policies([str(zoo)]).policies if one.place == str(zoo))
    return policy.card, yaml.safe_load((zoo / "x" / "experiment.yaml").read_text())


def test_paths_of_this_machine_are_no_part_of_a_policy(run, tmp_path):
    text = run.experiment.read_text()
    text = text.replace("dataset: []", "dataset: [/data/hopper, 'minari/name']")
    run.experiment.write_text(text.replace("init_from: null", "init_from: /runs/a@best"))
    _, settings = _push(run, tmp_path / "zoo")
    assert settings["dataset"] == ["hopper", "minari/name"] and settings["init_from"] == "a@best"


def test_a_long_curve_is_thinned_to_its_card(run, tmp_path):
    _write_curve(run, 3000)
    card, _ = _push(run, tmp_path / "zoo")
    assert len(card.curve) == 1000 and card.curve[0][0] == 9 and card.curve[-1] == [27_000, 3.5]


def test_a_run_that_learned_from_recorded_episodes_counts_learner_steps(run, tmp_path, capsys):
    _write_curve(run, 5, environment_steps=0)
    card, _ = _push(run, tmp_path / "zoo")
    assert card.steps == 5 and card.counted == "learner steps"
    assert main(["zoo", "list", "--from", str(tmp_path / "zoo")]) == 0
    assert "CartPole-v1  5 learner steps  7.0" in capsys.readouterr().out


@pytest.mark.parametrize("named", ["one", "one/policies", "one/policies/prey"])
def test_a_run_of_several_policies_is_not_pushed(named, run, tmp_path, capsys):
    for name in ("hunters", "prey"):
        shutil.copytree(run.path, tmp_path / "policies" / name)
    shutil.rmtree(run.checkpoints)
    (tmp_path / "policies").rename(run.path / "policies")
    assert main(["zoo", "push", str(run.path.parent / named), str(tmp_path / "zoo")]) == 2
    assert f"the run in {run.path} has policies that play together: a zoo takes a run" in capsys.readouterr().err


def test_a_score_that_no_zoo_takes_is_not_pushed(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("callboard.studies.zoo.zoo_scores._score", lambda *_: (float("nan"), 0.0))
    assert main(["zoo", "push", str(run.path), str(tmp_path / "zoo"), "--name", "x"]) == 2
    assert f"no zoo would accept this policy: mean in its {CARD}" in capsys.readouterr().err
    assert not list(tmp_path.glob("zoo/*"))


def test_returns_of_several_environments_are_not_compared(run, tmp_path, capsys):
    shutil.copytree(run.path, tmp_path / "runs" / "two")
    other = tmp_path / "runs" / "two" / "experiment.yaml"
    other.write_text(other.read_text().replace("max_episode_steps: 7", "max_episode_steps: 8"))
    assert main(["zoo", "push", str(tmp_path / "runs"), str(tmp_path / "zoo")]) == 2
    assert "/runs are of several environments: name one, such as" in capsys.readouterr().err


def test_a_damaged_card_is_left_out_with_a_line(zoo, tmp_path):
    for name in ("odd", "pipe", "link", "infinite"):
        shutil.copytree(zoo / "tiny", tmp_path / "zoo" / name)
    (tmp_path / "zoo" / "odd" / CARD).write_text("[]")
    (tmp_path / "zoo" / "infinite" / CARD).write_text('{"format": 1, "mean": Infinity}')
    for name in ("pipe", "link"):
        (tmp_path / "zoo" / name / CARD).unlink()
    os.mkfifo(tmp_path / "zoo" / "pipe" / CARD)
    (tmp_path / "zoo" / "link" / CARD).symlink_to(zoo / "tiny" / CARD)
    found = find_policies([str(tmp_path / "zoo")])
    assert len(found.problems) == 4 and not [one for one in found.policies if one.place == str(tmp_path / "zoo")]
    content = json.loads((zoo / "tiny" / CARD).read_text())
    for name in ("agent", "seed", "mean", "curve"):
        with pytest.raises(ValueError, match=f"{name} in its {CARD} is missing or wrong"):
            parse_card({**content, name: None})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda policy: (policy / CARD).write_text("{"), f"its {CARD} is damaged: "),
        (lambda policy: (policy / CARD).write_text("[]"), f"its {CARD} is not of format 1"),
        (lambda policy: (policy / CARD).unlink(), f"it has no {CARD}"),
        (lambda policy: (policy / "checkpoints/best.npz").unlink(), "it has no checkpoints/best.npz"),
        (lambda policy: (policy / "environment.json").unlink(), "it has no environment.json"),
    ],
)
@pytest.mark.parametrize("beginning", ["", "file://"])
def test_a_policy_that_is_there_and_cannot_be_used_is_named(damage, message, beginning, zoo, tmp_path, capsys):
    shutil.copytree(zoo / "tiny", tmp_path / "zoo" / "tiny")
    damage(tmp_path / "zoo" / "tiny")
    place = f"{beginning}{tmp_path}/zoo"
    for arguments in (["get", "tiny", str(tmp_path / "new")], ["evaluate", "tiny"]):
        assert main(["zoo", *arguments, "--from", place]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{place}/tiny " in line and message.removeprefix("it ") in line and "/callboard-" not in line
        assert not (tmp_path / "new").exists()
    if beginning and CARD not in message:
        return  # At a URL, only cards are read for a list.
    assert main(["zoo", "list", "--from", place]) == 0
    listed = capsys.readouterr()
    assert f"{place}/tiny cannot be used: {message}" in listed.err
    assert "install a wheel" not in listed.out or "no policies that can be used: " in listed.out
    # Another zoo has it, and the first one is not silently passed over.
    assert main(["zoo", "get", "tiny", str(tmp_path / "new"), "--from", place, "--from", str(zoo)]) == 0
    assert f"{place}/tiny cannot be used: {message}" in capsys.readouterr().err


def test_what_others_can_write_is_taken_only_with_trust(zoo, tmp_path, capsys):
    shutil.copytree(zoo, tmp_path / "zoo")
    (tmp_path / "zoo" / "tiny" / "experiment.yaml").chmod(0o666)
    (tmp_path / "zoo" / "tiny").chmod(0o777)
    assert main(["zoo", "get", "tiny", str(tmp_path / "new"), "--from", str(tmp_path / "zoo")]) == 2
    assert "if you trust it, give --trust" in capsys.readouterr().err and not (tmp_path / "new").exists()
    assert main(["zoo", "get", "tiny", str(tmp_path / "new"), "--from", str(tmp_path / "zoo"), "--trust"]) == 0


@pytest.mark.parametrize(
    "name, value", [("episodes", 0), ("episodes", 10**9), ("seed", -1), ("std", -1.0), ("env", "x" * 2000)]
)
def test_a_card_whose_evaluation_cannot_be_repeated_is_left_out(name, value, zoo):
    content = json.loads((zoo / "tiny" / CARD).read_text())
    with pytest.raises(ValueError, match=f"{name} in its {CARD} is missing or wrong"):
        parse_card({**content, name: value})


def test_a_zoo_of_others_at_a_url_of_this_machine_needs_trust(zoo, tmp_path, capsys):
    shutil.copytree(zoo, tmp_path / "zoo")
    (tmp_path / "zoo" / "tiny").chmod(0o777)
    for beginning in ("file://", "local://"):
        assert main(["zoo", "get", "tiny", str(tmp_path / "new"), "--from", f"{beginning}{tmp_path}/zoo"]) == 2
        assert "if you trust it, give --trust" in capsys.readouterr().err and not (tmp_path / "new").exists()


def test_a_full_disk_is_that_of_the_destination(zoo, tmp_path, monkeypatch, capsys):
    def fail(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pathlib.Path, "write_bytes", fail)
    assert main(["zoo", "get", "tiny", str(tmp_path / "new"), "--from", str(zoo)]) == 2
    full = f"callboard: {tmp_path}/new cannot be written: No space left on device; name another place\n"
    assert capsys.readouterr().err == full and not list(tmp_path.iterdir())


def test_a_large_score_is_listed_in_a_short_row(zoo, tmp_path, capsys):
    shutil.copytree(zoo, tmp_path / "zoo")
    card = tmp_path / "zoo" / "tiny" / CARD
    card.write_text(json.dumps({**json.loads(card.read_text()), "mean": -1e308, "std": 1e15}))
    assert main(["zoo", "list", "--from", str(tmp_path / "zoo")]) == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("tiny"))
    assert row.endswith("-1e+308 ± 1e+15")


@pytest.mark.slow("daily")
def test_places_that_cannot_be_written_are_one_line(zoo, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    push = ["push", str(zoo.parent / "runs"), str(tmp_path / "file"), "--episodes", "1"]
    for arguments in (["get", "tiny", str(tmp_path / "file" / "new"), "--from", str(zoo)], push):
        assert main(["zoo", *arguments]) == 2
        error = capsys.readouterr().err
        assert "file" in error and "cannot be written: " in error and "; name another place" in error


def test_an_installed_wheel_offers_its_policies_without_being_imported(zoo, tmp_path, monkeypatch):
    package = tmp_path / "somebodys_zoo"
    shutil.copytree(zoo, package)
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    metadata = tmp_path / "somebodys_zoo-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys-zoo\nVersion: 1.0\n")
    points = "[callboard.zoo]\nno_package = __main__\nnone = .x\nsomebodys = somebodys_zoo\n"
    (metadata / "entry_points.txt").write_text(points)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.syspath_prepend(str(tmp_path))
    (policy,) = (one for one in find_policies([]).policies if one.place == str(package))
    assert policy.name == "tiny" and policy.installed


def test_the_shipped_zoo_is_small_and_its_cards_are_valid():
    found = find_policies([str(SHIPPED / "callboard_zoo")])
    assert not found.problems and len(POLICIES) == len([one for one in found.policies if one.name in POLICIES])
    assert f"Its {len(POLICIES)} policies" in (SHIPPED.parents[1] / "docs" / "zoo.md").read_text()
    assert sum(path.stat().st_size for path in (SHIPPED / "callboard_zoo").rglob("*") if path.is_file()) < 16e6


@pytest.mark.parametrize("name", POLICIES)
def test_the_settings_of_a_shipped_policy_are_read(name):
    experiment = read_experiment(SHIPPED / "callboard_zoo" / name, trust=True)
    assert agent_name(experiment.agent) == json.loads((SHIPPED / "callboard_zoo" / name / CARD).read_text())["agent"]


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_a_shipped_policy_has_its_score(name, capsys):
    env = json.loads((SHIPPED / "callboard_zoo" / name / CARD).read_text())["env"]
    for beginning, package in OF_EXTRAS.items():
        if env.startswith(beginning):
            pytest.importorskip(package, reason=f"{package} is not installed")
    assert main(["zoo", "evaluate", name, "--from", str(SHIPPED / "callboard_zoo")]) == 0, capsys.readouterr().out


@pytest.mark.slow
def test_the_wheel_of_the_shipped_zoo_is_found(tmp_path):
    shutil.copytree(SHIPPED, tmp_path / "source")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", tmp_path / "site", tmp_path / "source"], check=True, timeout=300)
    command = [sys.executable, "-m", "callboard", "zoo", "list"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert all(name in done.stdout for name in POLICIES), done.stdout + done.stderr
