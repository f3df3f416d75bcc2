"""Metrics for Weights & Biases, in its offline mode."""

import imageio.v3 as imageio
import numpy as np
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


def test_videos_are_sent_once(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = LoggedRun(tmp_path / "x", {})
    videos = run.directory / "videos"
    videos.mkdir(parents=True)
    (videos / "evaluation-000000000005.mp4").write_bytes(b"sent before a resume")
    logger = make_logger("wandb")
    logger.start(run)
    frames = np.zeros((4, 16, 16, 3), np.uint8)
    imageio.imwrite(videos / "evaluation-000000000010.mp4", frames, plugin="pyav", codec="libx264", fps=10)
    for steps in (20, 30):
        logger.write({"environment_steps": steps, "learner/loss": 0.5})
    logger.close()
    sent = [path.name for path in (run.directory / "wandb").rglob("*.mp4")]
    assert len(sent) == 1 and sent[0].startswith("evaluation_")
