"""Loggers by name, and what they keep of a run."""

import importlib.util

import pytest

from callboard.errors import CallboardError
from callboard.launch.loggers import metric_logger
from callboard.launch.loggers.metric_logger import LoggedRun, MetricLogger, check_loggers, logger_names, make_logger


class Own(MetricLogger):
    def write(self, row):
        pass


def test_names_are_a_list_or_separated_by_commas():
    assert logger_names("wandb, mlflow") == logger_names(("wandb", "mlflow")) == ("wandb", "mlflow")
    assert logger_names("") == logger_names(()) == ()


def test_a_logger_of_the_user_s_own_is_named_by_its_path(tmp_path, monkeypatch):
    (tmp_path / "own_logger.py").write_text(
        "from callboard.launch.loggers.metric_logger import MetricLogger\n"
        "class Mine(MetricLogger):\n    def write(self, row):\n        pass\n"
        "def function():\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    check_loggers("own_logger:Mine")
    assert isinstance(make_logger("own_logger:Mine"), MetricLogger)
    with pytest.raises(CallboardError, match="must be a class that extends .*MetricLogger"):
        check_loggers("own_logger:function")


@pytest.mark.parametrize(
    "loggers, message",
    [
        ("wandbb", "unknown logger 'wandbb'; did you mean 'wandb'?"),
        ("x", "unknown logger 'x'; choose from wandb, mlflow, or name package.module:Class"),
        ("no_such_module:Class", "logger 'no_such_module:Class' cannot be imported"),
        ("callboard.launch.loggers.metric_logger:LoggedRun", "is refused: it belongs to the package callboard"),
    ],
)
def test_what_is_no_logger_is_refused(loggers, message):
    with pytest.raises(CallboardError) as caught:
        check_loggers(loggers)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_package_that_is_not_installed_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CallboardError, match=r"wandb is not installed: .*pip install .*'callboard\[wandb\]', or leave"):
        check_loggers(("wandb",))


def test_a_logger_is_listed_once(monkeypatch):
    monkeypatch.setattr(metric_logger, "require_package", lambda *arguments: None)
    check_loggers("mlflow,wandb")
    with pytest.raises(CallboardError, match="the logger 'wandb' is listed twice"):
        check_loggers("wandb,wandb")


def test_what_a_logger_keeps_outlives_it(tmp_path):
    run = LoggedRun(tmp_path / "x", {})
    run.directory.mkdir()
    assert run.name == "x" and run.recall("wandb") is None
    run.keep("wandb", "id")
    run.keep("mlflow", "other")
    assert LoggedRun(run.directory, {}).recall("wandb") == "id" and run.recall("mlflow") == "other"
    (run.directory / "loggers.json").write_text("[cut")
    assert run.recall("wandb") is None
