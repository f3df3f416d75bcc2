"""Metrics for Weights & Biases, in its offline mode."""

import pytest

from callboard.launch.loggers.metric_logger import LoggedRun, make_logger

pytest.importorskip("wandb")


def test_metrics_are_written_offline_and_a_resumed_run_has_the_same_id(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = LoggedRun(tmp_path / "x", {"env": "CartPole-v1"})
    run.directory.mkdir()
    for steps in (10, 20):
        logger = make_logger("wandb")
        logger.start(run)
        logger.write({"time": 1.0, "environment_steps": steps, "learner/loss": 0.5})
        logger.close()
    known = run.recall("wandb")
    files = sorted((run.directory / "wandb").glob(f"offline-run-*-{known}/run-{known}.wandb"))
    assert files and b"learner/loss" in files[0].read_bytes() and b"CartPole-v1" in files[0].read_bytes()
