"""The suites: their definitions, the runner, results that become old, and the page."""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from callboard.benchmarks.command import main
from callboard.benchmarks.peers.rounds import Peer
from callboard.benchmarks.suites import algorithm_version as versions
from callboard.benchmarks.suites import cell_results, command, page, runner, suite
from callboard.benchmarks.suites.cell_results import CellResult, SeedResult
from callboard.errors import CallboardError
from callboard.runtime.deadlines import Deadline
from callboard.studies.comparison.run_series import RunEnd, SeriesOutcome

SMALL = """\
title: Small
study:
  agents: [ppo, impala]
  environments: [CartPole-v1]
  settings: {max_steps: 4096, evaluate_every: 2048, evaluation_episodes: 2, actors: 1}
  launcher: inline
  seeds: [1, 2]
peers: [ppo]
steps_per_second: {ppo: 100, impala: 200}
references:
  - {agent: impala, env: CartPole-v1, steps: 4096, mean: 30, spread: 5, source: a table}
  - {agent: impala, env: CartPole-v1, steps: 9999, mean: 480, source: another, measured: training, is_goal: false}
"""


@pytest.fixture
def small(monkeypatch, tmp_path):
    definitions = tmp_path / "definitions"
    definitions.mkdir()
    (definitions / "small.yaml").write_text(SMALL)
    monkeypatch.setattr(suite, "DEFINITIONS", definitions)
    return suite.suite_cells("small", suite.read_suite("small"))


def fake_peer(monkeypatch, tmp_path, code):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(code))
    monkeypatch.setattr(runner, "_SCRIPT", script)
    monkeypatch.setattr(Peer, "python", lambda peer: pathlib.Path(sys.executable))


WRITES_A_RUN = """
import json, pathlib, sys, time
while time.process_time() < 0.1:  # Tenths of a second are kept.
    pass
run = pathlib.Path(sys.argv[5])
settings = {"agent": {"name": "sb3-ppo"}, "env": "CartPole-v1", "seed": int(sys.argv[4])}
(run / "experiment.yaml").write_text(json.dumps(settings))
rows = [
    {"environment_steps": step, "elapsed_seconds": step / 10, "actor/episode_return": step / 100}
    for step in range(0, 4096, 4)
]
evaluated = {"evaluator/return": 40.0 + int(sys.argv[4]), "evaluator/return_std": 1.0}
rows.append({**rows[-1], **evaluated, "evaluator/environment_steps": 4092})
(run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
"""


def peers_of(cells):
    return [cell for cell in cells if not cell.is_ours]


def test_every_suite_is_valid_and_every_reference_has_a_cell():
    for name in suite.suite_names():
        found = suite.read_suite(name)
        cells = suite.suite_cells(name, found)
        assert len({cell.full_name for cell in cells}) == len(cells)
        assert all(reference.source for reference in found.references)
    assert {"classic", "minatar", "mujoco", "control", "procgen", "atari", "bsuite"} <= set(suite.suite_names())


def test_a_side_of_the_peer_runs_beside_agents_that_have_one(small):
    assert [cell.full_name for cell in small] == [
        "small/ppo-CartPole-v1",
        "small/ppo-CartPole-v1.stable-baselines3",
        "small/impala-CartPole-v1",
    ]
    assert small[0].evaluations == 2 and small[0].seconds == pytest.approx(40.96)


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("peers: [ppo]", "peers: [impala]", "peer of suite small"),
        ("agent: impala, env: CartPole-v1, steps: 4096", "agent: impala, env: Pong, steps: 4096", "has no cell"),
        ("title: Small", "title: Small\nsizes: 3", "sizes"),
        ("mean: 30", "mean: text", "mean"),
    ],
)
def test_mistakes_in_a_suite_are_one_line(small, old, new, words):
    (suite.DEFINITIONS / "small.yaml").write_text(SMALL.replace(old, new))
    with pytest.raises(CallboardError, match=words):
        suite.suite_cells("small", suite.read_suite("small"))


def test_an_unknown_suite_is_refused(capsys):
    assert main(["suites", "list", "clasic"]) == 2
    assert "did you mean 'classic'?" in capsys.readouterr().err
    assert main(["suites", "list", "classic", "--only", "Tetris"]) == 2
    assert "no cell has 'Tetris'" in capsys.readouterr().err


def test_each_runner_has_cores_of_its_own_while_there_are_enough(monkeypatch):
    chosen = []
    monkeypatch.setattr(runner, "_CORES", [])
    monkeypatch.setattr(runner.os, "nice", lambda more: None)
    monkeypatch.setattr(runner.os, "sched_getaffinity", lambda process: {1001, 1002, 1003})
    monkeypatch.setattr(runner.os, "sched_setaffinity", lambda process, cores: chosen.append(list(cores)))
    for cores in (1, 1, 2):
        runner.be_modest(cores)
    runner._CORES[0].close()
    runner.be_modest(1)
    for holder in runner._CORES:
        holder.close()
    assert chosen == [[1003], [1002], [1001, 1003], [1003]]


def test_the_first_seeds_of_cells_can_be_made_before_the_others(small, monkeypatch, tmp_path, capsys):
    made = []
    monkeypatch.setattr(command, "be_modest", lambda cores: None)
    monkeypatch.setattr(command, "run_suites", lambda cells, *_: made.extend(cells) or [])
    arguments = ["suites", "run", "small", "--run-dir", str(tmp_path)]
    assert main([*arguments, "--seeds", "1"]) == 0 and [list(cell.seeds) for cell in made] == [[1]] * 3
    made.clear()
    assert main([*arguments, "--seeds", "5"]) == main(arguments) == 0
    assert [list(cell.seeds) for cell in made] == [[1, 2]] * 6
    assert main([*arguments, "--seeds", "0"]) == 2 and "--seeds must be at least 1, not 0" in capsys.readouterr().err


def test_runs_of_a_peer_are_made_once_and_kept_as_one_small_file(small, monkeypatch, tmp_path):
    fake_peer(monkeypatch, tmp_path, WRITES_A_RUN)
    said = []
    results = tmp_path / "results"
    assert runner.run_suites(peers_of(small), tmp_path / "runs", results, said.append) == []
    assert len(said) == 2
    path = results / "small" / "ppo-CartPole-v1.stable-baselines3.json"
    kept = cell_results.load_result(path)
    assert list(kept.seeds) == [1, 2] and kept.scores == [41.0, 42.0] and not kept.failed
    assert kept.seeds[1].training == pytest.approx(40.92) and kept.seeds[1].cpu_seconds > 0
    assert len(kept.seeds[1].curve) == 200 and kept.seeds[1].curve[-1][0] == 4092
    assert path.stat().st_size < 20_000
    assert runner.run_suites(peers_of(small), tmp_path / "runs", results, said.append) == []
    assert len(said) == 2


def test_a_run_that_fails_is_named_and_does_not_stop_the_others(small, monkeypatch, tmp_path):
    fake_peer(monkeypatch, tmp_path, "import sys\nif sys.argv[4] == '1': sys.exit(3)\n" + WRITES_A_RUN)
    said = []
    failed = runner.run_suites(peers_of(small), tmp_path / "runs", tmp_path / "results", said.append)
    assert failed == ["small/ppo-CartPole-v1.stable-baselines3/seed-1"] and "exit code 3" in "\n".join(said)
    kept = cell_results.load_result(cell_results.result_path(tmp_path / "results", peers_of(small)[0]))
    assert kept.failed == {1: 3}


def test_a_cell_that_another_runner_has_taken_is_left_to_it(small, monkeypatch, tmp_path):
    fake_peer(monkeypatch, tmp_path, WRITES_A_RUN)
    lock = tmp_path / "runs" / peers_of(small)[0].full_name / runner._LOCK
    code = f"""
        import pathlib, sys, time
        from callboard.launch.run_directory.run_lock import run_lock
        with run_lock(pathlib.Path({str(lock)!r}), "a runner of suites"):
            print("taken", flush=True)
            time.sleep(60)
    """
    holder = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "taken\n"
        said = []
        runner.run_suites(peers_of(small), tmp_path / "runs", tmp_path / "results", said.append)
        assert len(said) == 1 and "is left out" in said[0] and not (tmp_path / "results").exists()
    finally:
        holder.kill()
        holder.wait()


def test_a_signal_stops_the_runner_and_its_run_continues(small, monkeypatch, tmp_path):
    code = """
        import pathlib, signal, sys, time
        run = pathlib.Path(sys.argv[5])
        if (run / "saved").exists():
            exec(pathlib.Path(sys.argv[0]).with_name("rest.py").read_text())
            sys.exit()
        signal.signal(signal.SIGTERM, lambda *_: ((run / "saved").touch(), sys.exit(143)))
        (run / "begun").touch()
        time.sleep(60)
    """
    fake_peer(monkeypatch, tmp_path, code)
    (tmp_path / "rest.py").write_text(WRITES_A_RUN)
    begun = tmp_path / "runs" / peers_of(small)[0].full_name / "seed-1" / "begun"

    def interrupt_soon():
        deadline = Deadline(30)
        while not begun.exists() and not deadline.has_passed:
            time.sleep(0.02)
        os.kill(os.getppid(), signal.SIGTERM)

    pid = os.fork()
    if not pid:
        interrupt_soon()
        os._exit(0)
    with pytest.raises(runner.Stopped) as stopped:
        runner.run_suites(peers_of(small), tmp_path / "runs", tmp_path / "results", lambda text: None)
    os.waitpid(pid, 0)
    assert stopped.value.exit_code == 143 and (begun.parent / "saved").exists()
    assert not (tmp_path / "results").exists()
    one = [peers_of(small)[0].__class__(**{**vars(peers_of(small)[0]), "seeds": [1]})]
    assert runner.run_suites(one, tmp_path / "runs", tmp_path / "results", lambda text: None) == []


def test_the_results_so_far_of_a_stopped_run_are_kept_until_it_is_finished(small, monkeypatch, tmp_path):
    stops = (
        WRITES_A_RUN
        + """
import os, signal
if not (run / "saved").exists():
    signal.signal(signal.SIGTERM, lambda *_: ((run / "saved").touch(), sys.exit(143)))
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(60)
"""
    )
    fake_peer(monkeypatch, tmp_path, stops)
    cell, results = peers_of(small)[0], tmp_path / "results"
    path = cell_results.result_path(results, cell)
    for finished in ([], [1]):
        with pytest.raises(runner.Stopped):
            runner.run_suites([cell], tmp_path / "runs", results, lambda text: None)
        kept = cell_results.load_result(path)
        assert (
            list(kept.seeds) == finished and runner.missing_seeds(cell, results, tmp_path / "runs")[0] not in finished
        )
        assert {seed: run.score for seed, run in kept.unfinished.items()} == {len(finished) + 1: 41.0 + len(finished)}
    assert runner.run_suites([cell], tmp_path / "runs", results, lambda text: None) == []
    kept = cell_results.load_result(path)
    assert kept.scores == [41.0, 42.0] and not kept.unfinished and "unfinished" not in path.read_text()


def test_a_run_that_was_stopped_before_its_first_evaluation_has_training_returns(small, tmp_path):
    (tmp_path / "experiment.yaml").write_text('{"agent": {"name": "ppo"}, "env": "CartPole-v1", "seed": 1}')
    row = {"environment_steps": 8, "elapsed_seconds": 2.0}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    for is_finished in (True, False):
        with pytest.raises(CallboardError, match="has no result: no (evaluation|episode) has ended"):
            cell_results.seed_result(tmp_path, 1.0, is_finished)
    (tmp_path / "metrics.jsonl").write_text(json.dumps({**row, "actor/episode_return": 21.0}) + "\n")
    with pytest.raises(CallboardError, match="no evaluation has ended"):
        cell_results.seed_result(tmp_path, 1.0)
    stopped = cell_results.seed_result(tmp_path, 1.0, is_finished=False)
    assert (stopped.score, stopped.training, stopped.steps, stopped.evaluations) == (None, 21.0, 8, [])
    result = CellResult(**{**vars(cell_results.empty_result(small[2])), "unfinished": {1: stopped}})
    row = page.Row(small[2], result, None, False, [])
    assert "| 0 of 2 |  | 21.0 |  |  | not finished: after 8 steps |" in page._table([row])


def test_our_runs_may_wait_long_for_a_processor(small, monkeypatch, tmp_path):
    given = []
    ended = SeriesOutcome({"seed-1": RunEnd(1, 0.0)}, None)
    monkeypatch.setattr(runner, "run_series", lambda directory, cells, notify: given.extend(cells) or ended)
    runner.run_suites([dataclasses.replace(small[2], seeds=[1])], tmp_path / "runs", tmp_path, lambda text: None)
    assert list(given[0].options) == ["--launcher", "inline", "--node-timeout", "7200"]


@pytest.mark.slow("daily")
def test_results_of_an_earlier_algorithm_are_made_again_and_kept_until_then(small, monkeypatch, tmp_path):
    fake_peer(monkeypatch, tmp_path, WRITES_A_RUN)
    results = tmp_path / "results"
    runner.run_suites(peers_of(small), tmp_path / "runs", results, lambda text: None)
    path = cell_results.result_path(results, peers_of(small)[0])
    before = path.read_bytes()
    monkeypatch.setattr(cell_results, "_peer_version", lambda: "99")
    assert runner.missing_seeds(peers_of(small)[0], results, tmp_path / "runs") == [1, 2]
    fake_peer(monkeypatch, tmp_path, "import sys\nif sys.argv[4] == '2': sys.exit(3)\n" + WRITES_A_RUN)
    runner.run_suites(peers_of(small), tmp_path / "runs", results, lambda text: None)
    assert path.read_bytes() == before, "half of the new runs do not replace all of the old ones"
    assert runner.missing_seeds(peers_of(small)[0], results, tmp_path / "runs") == [2]
    fake_peer(monkeypatch, tmp_path, WRITES_A_RUN)
    runner.run_suites(peers_of(small), tmp_path / "runs", results, lambda text: None)
    assert cell_results.load_result(path).algorithm == "99"


@pytest.fixture
def copied_agents(monkeypatch, tmp_path):
    root = pathlib.Path(versions.__file__).parents[2]
    copy = tmp_path / "agents"
    shutil.copytree(root / "agents", copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(versions, "_AGENTS", copy)
    return copy


def version_of(agent):
    versions._imported.cache_clear()
    versions._definitions.cache_clear()
    return versions.algorithm_version(agent)


@pytest.mark.slow("daily")
def test_the_version_of_an_algorithm_changes_with_losses_and_defaults_alone(copied_agents):
    before = {agent: version_of(agent) for agent in ("ppo", "impala", "sac")}
    losses = copied_agents / "losses" / "gae.py"
    losses.write_text('"""Another docstring."""\n# A comment.\nimport os\n' + losses.read_text().partition('"""\n')[2])
    for name in ("policies/acting.py", "fast_function.py"):
        module = copied_agents / name
        module.write_text(module.read_text() + "\nA_NEW_NAME = 1\n")
        module.write_text(module.read_text().replace("return ", "return 1.0 * ", 1))
    assert {agent: version_of(agent) for agent in before} == before
    moved = losses.with_name("moved.py")
    moved.write_text(losses.read_text() + "\nA_NEW_NAME = 1\n")
    names = re.findall(r"^(?:def|class) (\w+)", moved.read_text(), re.MULTILINE)
    losses.write_text(f"from .moved import {', '.join(names)}\n")
    assert {agent: version_of(agent) for agent in before} == before
    moved.write_text(moved.read_text().replace("return ", "return 1.0 * ", 1))
    assert version_of("ppo") != before["ppo"] and version_of("sac") == before["sac"]
    settings = copied_agents / "settings" / "sac_settings.py"
    settings.write_text(settings.read_text().replace("0.005", "0.006"))
    assert version_of("sac") != before["sac"]


@pytest.mark.slow("daily")
def test_a_check_that_only_raises_is_no_other_algorithm(copied_agents):
    before = version_of("sac")
    shared = copied_agents / "settings" / "shared_settings.py"
    text, check = shared.read_text(), "        limit = self.action_limit\n"
    shared.write_text(text.replace(check, check + '        if limit == 7:\n            raise ValueError("7")\n'))
    assert shared.read_text() != text and version_of("sac") == before
    shared.write_text(text.replace(check, check + "        if limit == 7:\n            limit = 8\n"))
    assert version_of("sac") != before


def result_of(cell, scores, **changes):
    empty = cell_results.empty_result(cell)
    seeds = {
        seed: SeedResult(
            score, 1.0, score - 5, cell.steps, 10.0, 20.0, [(10.0, score)], [(5.0, 1.0), (10.0, score - 5)]
        )
        for seed, score in enumerate(scores, 1)
    }
    return CellResult(**{**vars(empty), "seeds": seeds, **changes})


@pytest.mark.slow("daily")
def test_the_page_shows_what_is_reached_what_is_short_and_what_is_missing(small, tmp_path):
    ours, peer, other = small
    results, docs = tmp_path / "results", tmp_path / "docs"
    docs.mkdir()
    (docs / page.PAGE).write_text(f"before\n{page.MARKS[0]}\nold\n{page.MARKS[1]}\nafter\n")

    def reported():
        assert main(["suites", "report", "--results", str(results), "--docs", str(docs)]) == 0
        return (docs / page.PAGE).read_text()

    text = reported()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "| Small | 2 | 0 | 0 | 0 | 0 | 2 | 0.0 |" in text
    assert "| `ppo` | CartPole-v1 | 4,096 | 0 of 2 | missing |  | Stable-Baselines3: missing |  |  |" in text
    assert "30.0 ± 5; 480.0 in training after 9,999" in text
    assert not (docs / "suite-small.png").exists() and not (docs / page.PUBLISHED).exists()
    finished = result_of(ours, [40.0, 50.0])
    stopped = CellResult(**{**vars(finished), "unfinished": finished.seeds, "seeds": {}})
    cell_results.save_result(cell_results.result_path(results, ours), stopped)
    text = reported()
    assert "| Small | 2 | 0 | 0 | 0 | 0 | 2 | 0.0 |" in text
    assert "| 0 of 2 | 45.0 ± 5 | 40.0 ± 5 | Stable-Baselines3: missing |  | not finished: after 4,096 steps |" in text
    cell_results.save_result(cell_results.result_path(results, ours), finished)
    assert page.rows_of("small", suite.read_suite("small"), results)[0].verdict == "missing", "the peer's is missing"
    cell_results.save_result(cell_results.result_path(results, peer), result_of(peer, [49.0, 49.0]))
    cell_results.save_result(cell_results.result_path(results, other), result_of(other, [26.0], algorithm="old"))
    text = reported()
    assert "| Small | 2 | 2 | 1 | 1 | 1 | 0 | 0.0 |" in text
    assert "| 2 of 2 | 45.0 ± 5 | 40.0 ± 5 | Stable-Baselines3: 49.0 ± 0 | 49.0 | short |" in text
    assert (
        "| 1 of 2 | 26.0 | 21.0 | 30.0 ± 5; 480.0 in training after 9,999 | 25.0 | reached; made with an earlier"
        in text
    )
    assert (docs / "suite-small.png").stat().st_size > 10_000
    assert (docs / page.PUBLISHED).stat().st_size > 10_000 and page.PUBLISHED in text


def test_a_damaged_file_of_results_is_one_line(small, tmp_path, capsys):
    path = cell_results.result_path(tmp_path, small[0])
    path.parent.mkdir(parents=True)
    for content in ("{", "[1]", '{"seeds": {}}', '{"seeds": 3}'):
        path.write_text(content)
        with pytest.raises(CallboardError, match=path.name):
            cell_results.load_result(path)


def test_the_command_of_a_cell_can_be_repeated(small):
    assert cell_results.command_of(small[2]) == (
        "callboard train impala --max-steps 4096 --evaluate-every 2048 --evaluation-episodes 2 --actors 1 "
        "--env CartPole-v1 --seed SEED --launcher inline"
    )


@pytest.mark.slow
def test_our_runs_continue_after_the_runner_was_killed(small, tmp_path):
    """With `kill -9`, at a random moment of the first run."""
    words = ["suites", "run", "small", "--only", "impala", "--run-dir", str(tmp_path / "runs")]
    words += ["--results", str(tmp_path / "results")]
    code = (
        "import pathlib, sys; from callboard.benchmarks import command; from callboard.benchmarks.suites import suite; "
        f"suite.DEFINITIONS = pathlib.Path({str(suite.DEFINITIONS)!r}); sys.exit(command.main({words!r}))"
    )
    run = tmp_path / "runs" / small[2].full_name / "seed-1"
    first = subprocess.Popen([sys.executable, "-c", code])
    deadline = Deadline(120)
    while not (run / "metrics.jsonl").exists() and not deadline.has_passed:
        time.sleep(0.1)
    first.kill()
    first.wait()
    assert subprocess.run([sys.executable, "-c", code], timeout=400).returncode == 0
    kept = json.loads((tmp_path / "results" / "small" / "impala-CartPole-v1.json").read_text())
    assert list(kept["seeds"]) == ["1", "2"]
    assert all(values["steps"] >= 4096 and len(values["evaluations"]) >= 1 for values in kept["seeds"].values())


@pytest.mark.slow
def test_a_run_of_the_peer_is_stopped_and_continued(small, tmp_path):
    python = next(peer.python() for peer in runner.PEERS if peer.venv == "sb3")
    if not python.exists():
        pytest.skip(f"{python} does not exist: benchmarks/peers/setup makes it")
    cell = peers_of(small)[0]
    run = tmp_path / "seed-1"
    run.mkdir()
    command = [str(python.absolute()), str(runner._SCRIPT), "dqn", "CartPole-v1", "6000", "1", str(run)]
    first = subprocess.Popen([*command, "--evaluations", "2"])
    deadline = Deadline(120)
    while not (run / "metrics.jsonl").exists() or not (run / "metrics.jsonl").read_bytes().count(b"\n") > 5:
        assert not deadline.has_passed
        time.sleep(0.05)
    first.terminate()
    assert first.wait() == 143 and (run / "saved.json").exists()
    subprocess.run([*command, "--evaluations", "2"], check=True)
    result = cell_results.seed_result(run, 1.0)
    steps = [step for step, _ in result.curve]
    assert result.steps == 6000 and len(result.evaluations) == 2 and steps == sorted(set(steps))
    assert not (run / "saved.json").exists() and cell.side == suite.PEER


def test_a_reference_may_belong_to_one_of_several_cells_of_an_agent(monkeypatch, tmp_path):
    text = SMALL.replace("[ppo, impala]", "[{agent: ppo, name: fast}, {agent: ppo, name: slow}, impala]")
    text = text.replace("impala: 200", "slow: 10")
    text += "  - {agent: ppo, name: fast, env: CartPole-v1, steps: 4096, mean: 100, source: a third}\n"
    (tmp_path / "small.yaml").write_text(text)
    monkeypatch.setattr(suite, "DEFINITIONS", tmp_path)
    found = suite.read_suite("small")
    cells = {cell.shown_agent: cell for cell in suite.suite_cells("small", found) if cell.is_ours}
    third = found.references[-1]
    assert [name for name, cell in cells.items() if third.is_of(cell)] == ["fast"]
    assert cells["fast"].steps_per_second == 100 and cells["slow"].steps_per_second == 10
    (tmp_path / "small.yaml").write_text(text.replace("name: fast, env", "name: fastest, env"))
    with pytest.raises(CallboardError, match="no cell for the reference of fastest on CartPole-v1"):
        suite.suite_cells("small", suite.read_suite("small"))
