"""Metrics for MLflow, in files."""

import pytest

from callboard.launch.loggers.metric_logger import LoggedRun, make_logger

pytest.importorskip("mlflow")


def test_metrics_and_settings_are_written_to_the_run_directory_and_a_resumed_run_continues(tmp_path, monkeypatch):
    from mlflow.tracking import MlflowClient

    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    run = LoggedRun(tmp_path / "x", {f"setting{index}": "v" * 7000 for index in range(150)})
    run.directory.mkdir()
    for steps in (10, 20):
        logger = make_logger("mlflow")
        logger.start(run)
        logger.write({"time": 1.0, "environment_steps": steps, "learner/loss": 0.5})
        logger.close()
    client = MlflowClient(tracking_uri=(run.directory / "mlruns").as_uri())
    found = client.get_run(run.recall("mlflow"))
    assert found.info.status == "FINISHED" and found.info.run_name == "x"
    assert len(found.data.params) == 150 and len(found.data.params["setting149"]) == 6000
    history = client.get_metric_history(found.info.run_id, "learner/loss")
    assert [(metric.step, metric.value) for metric in history] == [(10, 0.5), (20, 0.5)]


def test_names_and_numbers_of_metrics_that_mlflow_refuses_reach_it(tmp_path, monkeypatch):
    from mlflow.tracking import MlflowClient

    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    run = LoggedRun(tmp_path / "x", {"env_options.größe": "1", f"env_options.{'x' * 300}": "2"})
    run.directory.mkdir()
    logger = make_logger("mlflow")
    logger.start(run)
    logger.write({"environment_steps": 1, f"episode/{'y' * 300}": 0.5, **{f"m{index}": 1.0 for index in range(1100)}})
    logger.close()
    found = MlflowClient(tracking_uri=(run.directory / "mlruns").as_uri()).get_run(run.recall("mlflow"))
    assert len(found.data.params) == 2 and len(found.data.metrics) == 1102
