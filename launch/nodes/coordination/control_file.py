"""The file that keeps what has been changed in a run, in addition to its checkpoints."""

import dataclasses
import json
from typing import Any

from ....files.atomic_files import write_file
from ....files.guarded_files import read_json
from ....settings.nested_settings import values_of
from ...experiments.checked_run import Run
from ...node_names import metric_of
from ...run_directory.checkpoints import Checkpoints
from ..reports.messages import ControlState
from ..reports.run_control import RunControl


class ControlFile:
    """Keeps the task and the settings that have been changed.

    Args:
      run: the run, as configured for this start.
    """

    def __init__(self, run: Run):
        self._path = run.directory.control
        self._policy_runs = run.policy_runs

    def content(self, control: RunControl) -> dict[str, Any]:
        """Returns what has been changed, as JSON can express it; empty if nothing has."""
        state = control.state
        if state.task is None and not state.settings:
            return {}
        configured = self._configured()
        settings = {name: [configured[name], value] for name, value in state.settings.items()}
        return {"task": state.task, "settings": settings}

    def save(self, control: RunControl) -> None:
        """Replaces the file.

        Raises:
          OSError: the file could not be written; its old content is kept.
        """
        write_file(self._path, json.dumps(self.content(control)))

    def load(self) -> ControlState:
        """Returns the task and the settings of the file, or of the newest checkpoint if there is no file.

        A setting that was configured otherwise for this start keeps its new value.
        """
        try:
            return self._state(read_json(self._path))
        except (OSError, ValueError, TypeError, AttributeError):
            return self._state(Checkpoints(self._policy_runs[0].directory).control())

    def _state(self, content: dict[str, Any]) -> ControlState:
        configured = self._configured()
        settings = {
            name: value
            for name, (before, value) in (content.get("settings") or {}).items()
            if name in configured and configured[name] == before
        }
        return ControlState(task=content.get("task"), settings=settings)

    def _configured(self) -> dict[str, Any]:
        """Returns the settings that may change, as JSON gives them back: schedules are mappings."""
        return {
            metric_of(policy_run.policy, name): json.loads(json.dumps(value, default=dataclasses.asdict))
            for policy_run in self._policy_runs
            for name, value in values_of(policy_run.agent).items()
            if name in type(policy_run.agent).live
        }
