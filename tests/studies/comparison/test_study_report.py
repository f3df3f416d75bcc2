"""The report of a study."""

import pytest
from synthetic_runs import write_run

from callboard.studies.comparison.run_series import RunEnd, SeriesDirectory
from callboard.studies.comparison.study_definition import cells_of, parse_study
from callboard.studies.comparison.study_report import compare_study, write_report


@pytest.mark.slow("daily")
def test_the_report_has_tables_plots_and_what_is_missing(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    study = parse_study(
        {
            "agents": ["impala", {"agent": "ppo", "name": "mine"}],
            "environments": ["CartPole-v1"],
            "seeds": [1, 2],
            "report": {"goal": 475, "resamples": 100},
            "description": "Two agents.",
        }
    )
    cells = cells_of(study)
    directory = SeriesDirectory(tmp_path / "study")
    for seed in (1, 2):
        write_run(tmp_path / "study" / "impala-CartPole-v1" / f"seed-{seed}", [(1000, 10.0), (2000, 480.0)], seed=seed)
    bad = tmp_path / "study" / "mine-CartPole-v1" / "seed-1"
    write_run(bad, [(1000, 10.0)])
    (bad / "metrics.jsonl").unlink()
    ends = {"impala-CartPole-v1/seed-1": RunEnd(0, 1.0), "impala-CartPole-v1/seed-2": RunEnd(0, 1.0)}
    directory.write_progress({**ends, "mine-CartPole-v1/seed-1": RunEnd(1, 1.0), "mine-CartPole-v1/seed-2": None})
    comparison = compare_study(study, cells, directory)
    assert [score.group.name for score in comparison.groups] == ["impala on CartPole-v1"]
    path = write_report(study, cells, comparison, directory, "two-agents", "callboard study two.yaml")
    text = path.read_text()
    assert text.startswith(
        "# two-agents\n\nTwo agents.\n\n```\ncallboard study two.yaml\n```\n\n2 of 4 runs are finished."
    )
    assert "| impala on CartPole-v1 | 1 | 2,000 | 2 | 480.0 ± 48.0 |" in text
    assert "- `mine-CartPole-v1/seed-1`: exit code 1" in text and "is left out: it has no metrics.jsonl" in text
    for name in ("curves.png", "scores.png"):
        assert f"({name})" in text and (path.parent / name).read_bytes().startswith(b"\x89PNG")
    assert "[settings](mine-CartPole-v1/settings.yaml)" in text
