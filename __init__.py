"""Callboard: training reinforcement-learning agents with many actors and few learners."""

import importlib
import os
from typing import TYPE_CHECKING, Any

from .launch.processes.cuda_libraries import load_runtime
from .runtime.imports_elsewhere import import_elsewhere
from .runtime.moved_modules import find_moved_modules

if TYPE_CHECKING:
    from .callbacks import Callbacks
    from .environments.python_factory import register_environment
    from .errors import CallboardError
    from .launch.experiments.experiment import Experiment
    from .launch.result import Result
    from .launch.run import run
    from .launch.session import Session
    from .launch.trained.acting_policy import ActingPolicy
    from .launch.trained.saved_runs import evaluate, export, load_policy
    from .studies.comparison.compared_runs import compare
    from .studies.datasets.dataset_info import dataset_info
    from .studies.datasets.dataset_video import dataset_video
    from .studies.datasets.value_estimates import estimate_value
    from .studies.tuning.tune_function import tune

__version__ = "0.2.0"

__all__ = [
    "ActingPolicy",
    "CallboardError",
    "Callbacks",
    "Experiment",
    "Result",
    "Session",
    "compare",
    "dataset_info",
    "dataset_video",
    "estimate_value",
    "evaluate",
    "export",
    "load_policy",
    "register_environment",
    "run",
    "tune",
]

# TensorFlow and Courier read these when they are imported, which happens later; a value that is set already remains.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# TensorFlow itself uses oneDNN, whose convolutions are three times as fast, only on processors with AVX-512.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
# Where there is a GPU, TensorFlow registers its kernels with this library while it is imported.
load_runtime()

import_elsewhere()
find_moved_modules()

# The module of each public name.  It is imported when the name is first used: importing Callboard itself is quick, and
# imports no TensorFlow.
_MODULES = {
    "ActingPolicy": ".launch.trained.acting_policy",
    "CallboardError": ".errors",
    "Callbacks": ".callbacks",
    "Experiment": ".launch.experiments.experiment",
    "Result": ".launch.result",
    "Session": ".launch.session",
    "compare": ".studies.comparison.compared_runs",
    "dataset_info": ".studies.datasets.dataset_info",
    "dataset_video": ".studies.datasets.dataset_video",
    "estimate_value": ".studies.datasets.value_estimates",
    "evaluate": ".launch.trained.saved_runs",
    "export": ".launch.trained.saved_runs",
    "load_policy": ".launch.trained.saved_runs",
    "register_environment": ".environments.python_factory",
    "run": ".launch.run",
    "tune": ".studies.tuning.tune_function",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        errors = importlib.import_module(".errors", __name__)
        raise errors.UnknownAttribute(f"module {__name__!r}", name, __all__)
    return getattr(importlib.import_module(_MODULES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
