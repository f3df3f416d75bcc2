"""Modules under the names that they had in version 0.2: settings of its runs, and own code, still find them.

`callboard.launch.settings` is the module `callboard.launch.experiments.settings`, the same object.  The next release no
longer has the old names.
"""

import importlib.machinery
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType

_LIBRARY = __name__.partition(".")[0]
_MOVED = """
agents.acting agents.policies.acting
agents.array_parts agents.variables.array_parts
agents.gradient_learner agents.learning.gradient_learner
agents.gradient_step agents.learning.gradient_step
agents.learning.fast_function agents.fast_function
agents.learning.finite_checks agents.variables.finite_checks
agents.learning.frozen_weights agents.variables.frozen_weights
agents.learning.ppo_learner agents.ppo_learner
agents.learning.ppo_rollout agents.ppo_rollout
agents.learning.sac_composed agents.soft_actions
agents.learning.weight_names agents.variables.weight_names
agents.learning.weight_patterns agents.variables.weight_names
agents.offline.awr_settings agents.offline.bc_settings
agents.offline.cql_settings agents.settings.sac_settings
agents.offline.td3_bc_settings agents.settings.td3_settings
agents.optimizer_settings agents.settings.optimizer_settings
agents.optimizers agents.learning.optimizers
agents.policies.action_probabilities studies.datasets.value_estimates
agents.policies.array_function agents.policies.array_policy
agents.policies.network_inputs agents.learning.network_inputs
agents.policies.philox agents.policies.array_operations
agents.settings.a3c_settings agents.settings.a2c_settings
agents.settings.appo_settings agents.settings.impala_settings
agents.settings.bounded_action_settings agents.settings.shared_settings
agents.settings.dmpo_settings agents.settings.d4pg_settings
agents.settings.drq_settings agents.settings.sac_settings
agents.settings.exploration_settings agents.settings.shared_settings
agents.settings.gaussian_settings agents.settings.shared_settings
agents.settings.observation_settings agents.settings.shared_settings
agents.settings.prioritized_replay_settings agents.settings.shared_settings
agents.settings.reward_settings agents.settings.shared_settings
agents.weights agents.variables.weights
atomic_files files.atomic_files
callback_settings settings.callback_settings
caller_words messages.caller_words
deadlines runtime.deadlines
environments.adapters.gymnasium_registry environments.gymnasium_registry
environments.adapters.info_masks environments.info_masks
environments.adapters.minigrid environments.minigrid
environments.batches.episode_limits environments.checks.episode_limits
environments.batches.sought_infos environments.batches.infos
environments.checks.checked_observations environments.batches.checked_observations
environments.checks.given_numbers environments.batches.given_observations
environments.checks.given_observations environments.batches.given_observations
environments.checks.observation_bounds environments.batches.checked_observations
environments.checks.observation_values environments.batches.observation_values
environments.checks.overwritten_observations environments.batches.overwritten_observations
environments.checks.random_actions environments.checks.trial
environments.checks.user_errors environments.batches.user_errors
environments.checks.user_traceback environments.batches.user_errors
environments.env_config environments.python_factory
environments.external.recorded_spaces environments.external.spaces_only
environments.external.simulators environments.external.spaces_only
environments.multi_agent.pettingzoo_names environments.adapters.pettingzoo_names
environments.recorded.info_columns environments.recorded.chosen_infos
foreign_names messages.foreign_names
guarded_files files.guarded_files
imports_elsewhere runtime.imports_elsewhere
install_commands messages.install_commands
interpreter runtime.interpreter
launch.cli cli
launch.comparison studies.comparison
launch.datasets studies.datasets
launch.experiment launch.experiments.experiment
launch.launchers.node_processes.preload launch.preload
launch.launchers.screen.next_commands launch.launchers.screen.run_summary
launch.launchers.supervision.node_thread launch.launchers.threads
launch.loggers.run_loggers launch.nodes.coordination.coordinator
launch.nodes.coordination.node_incarnations launch.nodes.coordination.report_intake
launch.nodes.coordination.run_ending launch.nodes.coordination.run_limits
launch.nodes.coordination.step_rates launch.nodes.coordination.run_metrics
launch.nodes.devices launch.processes.devices
launch.nodes.episodes.training_pictures launch.pictures.training_pictures
launch.nodes.evaluation.prepared_evaluator launch.nodes.evaluation.evaluator
launch.nodes.recorded.episode_sender launch.nodes.episodes.episode_sender
launch.run_directory.new_or_resumed launch.experiments.new_or_resumed
launch.run_directory.run_files launch.experiments.run_files
launch.run_directory.run_overview launch.experiments.run_overview
launch.run_directory.run_reference launch.run_directory.found_runs
launch.runs.live_view launch.pictures.live_view
launch.serving.episode_server launch.nodes.inference.episode_server
launch.serving.http_door launch.nodes.inference.http_door
launch.serving.place_pacing launch.nodes.inference.policy_server
launch.serving.places launch.nodes.inference.places
launch.serving.rate_limit launch.serving.limited_log
launch.serving.served_policy launch.trained.served_policy
launch.settings launch.experiments.settings
launch.stop_signals launch.processes.stop_signals
launch.trained.exported_policy launch.trained.export
launch.trained.policy_loading launch.trained.saved_runs
launch.trained.saved_players launch.trained.evaluation
launch.trained.saved_policies launch.saved.saved_policies
launch.trained.saved_spaces launch.saved.saved_policies
launch.trained.trained_policy_sources launch.saved.saved_policies
launch.trained.video launch.nodes.evaluation.video
launch.trained.video_files launch.pictures.video_files
launch.trained.warm_start launch.saved.warm_start
launch.tuning studies.tuning
manifest files.manifest
moved_modules runtime.moved_modules
named_objects settings.named_objects
nested_settings settings.nested_settings
networks.actor_critics.discrete_actor_critic networks.actor_critics.actor_critic
networks.residual networks.torsos.residual
own_modules settings.own_modules
replay.demonstrations replay.reading.demonstrations
replay.item_format replay.writing.item_format
replay.servers.heartbeat replay.servers.handle
replay.writing.discounted_returns replay.writing.sequences
replay.writing.duplicate_filter replay.servers.handle
replay.writing.recent_records replay.writing.item_writer
replay_settings settings.replay_settings
setting_arguments settings.setting_arguments
setting_descriptions settings.setting_descriptions
setting_types settings.setting_types
settings.foreign_names messages.foreign_names
tracing_lock runtime.tracing_lock
"""
"""Old and new names of modules and packages, without the library's."""


class MovedModules:
    """Finds the modules of this library that have moved."""

    def __init__(self) -> None:
        self._moved = dict(line.split() for line in _MOVED.split("\n") if line)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith(f"{_LIBRARY}.") or not self._new_name(name):
            return None
        return importlib.machinery.ModuleSpec(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Leaves it to Python to make the module that `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        """Puts the module itself in the place of `module`, the one under its old name."""
        new = self._new_name(module.__name__)
        warnings.warn(f"{module.__name__} is now {new}", DeprecationWarning, stacklevel=2)
        sys.modules[module.__name__] = importlib.import_module(new)

    def _new_name(self, name: str) -> str:
        """Returns the new name of a module, or of one in a package that has moved; empty if it has not moved."""
        old = name.removeprefix(f"{_LIBRARY}.")
        package = old
        while package and package not in self._moved:
            package = package.rpartition(".")[0]
        return f"{_LIBRARY}.{self._moved[package]}{old.removeprefix(package)}" if package else ""


def find_moved_modules() -> None:
    """Lets imports find modules by their old names, before Python would look for them."""
    sys.meta_path.insert(0, MovedModules())
