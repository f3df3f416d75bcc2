"""`callboard ls`: the runs in a folder."""

import json
import pathlib

from synthetic_runs import write_run

from callboard.cli.command import main


def test_runs_are_listed_with_state_steps_and_score(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for seed in (10, 2):
        write_run(
            pathlib.Path(f"runs/seeds/seed-{seed}"), [(1000, 20.0 * seed)], seed=seed, options=["--max-steps=1000"]
        )
    write_run(pathlib.Path("runs/other"), [], agent="ppo")
    assert main(["ls"]) == 0
    head, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert head == ["run", "state", "steps", "score", "age", "agent", "environment", "seed"]
    assert [row[0] for row in rows] == ["runs/other", "runs/seeds/seed-2", "runs/seeds/seed-10"]
    assert rows[0][1:3] == ["no", "results"] and rows[0][-3] == "ppo"
    assert rows[1][1:6] == ["done", "1,000", "of", "1,000", "40.0"] and rows[1][-1] == "2"
    assert main(["ls", "runs/seeds", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["scores"] for one in found] == [{"": 40.0}, {"": 200.0}]


def test_of_a_run_on_recorded_episodes_learner_steps_are_listed(tmp_path, capsys):
    run = tmp_path / "offline"
    options = ["--dataset=data", "--actors=0", "--max-learner-steps=300"]
    write_run(run, [], agent="iql", options=options)
    line = {"time": 1e9, "environment_steps": 0, "learner_steps": 300, "evaluator/return": 5.0}
    (run / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    assert main(["ls", str(tmp_path)]) == 0
    row = capsys.readouterr().out.splitlines()[1].split()
    assert row[1:6] == ["done", "300", "of", "300", "learner"]


def test_folders_without_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["ls"]) == 0 and capsys.readouterr().out == "no runs in runs\n"
    assert main(["ls", "elsewhere"]) == 2
    assert capsys.readouterr().err == "callboard: there is no folder elsewhere\n"
