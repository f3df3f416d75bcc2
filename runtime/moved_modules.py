"""Modules and names under their old names: settings of saved runs, and own code, still find them.

`callboard.launch.settings` is the module `callboard.launch.experiments.settings`, the same object, and
`callboard.launch.program.nodes_of` is `callboard.launch.program_nodes.nodes_of`.  The tables have what the pages and
examples of version 0.2.0 import, and whatever was public before folders became layers, unless it was removed.  The
next release no longer has the old names.
"""

import importlib.machinery
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

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
agents.losses.transitions transitions
agents.offline.awr_settings agents.offline.bc_settings
agents.offline.cql_settings agents.settings.sac_settings
agents.offline.td3_bc_settings agents.settings.td3_settings
agents.optimizer_settings agents.settings.optimizer_settings
agents.optimizers agents.learning.optimizers
agents.policies.action_probabilities studies.datasets.value_estimates
agents.policies.array_function agents.policies.array_policy
agents.policies.network_inputs agents.learning.network_inputs
agents.policies.philox agents.policies.array_operations
agents.policies.r2d2_policy agents.r2d2
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
environments.adapters.waiting_environments environments.adapters.gymnasium_vector_batch
environments.atari environments.adapters.atari
environments.batched environments.batches.batched
environments.batches.episode_limits environments.checks.episode_limits
environments.batches.sought_infos environments.batches.infos
environments.checks.checked_observations environments.batches.checked_observations
environments.checks.examination_process environments.checks.examination
environments.checks.given_numbers environments.batches.given_observations
environments.checks.given_observations environments.batches.given_observations
environments.checks.observation_bounds environments.batches.checked_observations
environments.checks.observation_values environments.batches.observation_values
environments.checks.overwritten_observations environments.batches.overwritten_observations
environments.checks.random_actions environments.checks.trial
environments.checks.user_errors environments.batches.user_errors
environments.checks.user_traceback environments.batches.user_errors
environments.dm_env_adapter environments.adapters.dm_env_adapter
environments.env_config environments.python_factory
environments.external.recorded_spaces environments.external.spaces_only
environments.external.simulators environments.external.spaces_only
environments.gymnasium_adapter environments.adapters.gymnasium_batch
environments.minatar environments.adapters.minatar
environments.multi_agent.pettingzoo_names environments.adapters.pettingzoo_names
environments.procgen environments.adapters.procgen
environments.recorded.info_columns environments.recorded.chosen_infos
foreign_names messages.foreign_names
guarded_files files.guarded_files
imports_elsewhere runtime.imports_elsewhere
install_commands messages.install_commands
interpreter runtime.interpreter
launch.cli cli
launch.cli.launcher_options cli.train
launch.cli.quiet_stdout cli.evaluate
launch.comparison studies.comparison
launch.datasets studies.datasets
launch.datasets.episode_graph studies.datasets.dataset_video
launch.experiment launch.experiments.experiment
launch.launchers.node_processes.preload launch.preload
launch.launchers.ray.parameter_server launch.nodes.acting.weight_store
launch.launchers.ray.parts launch.launchers.ray.own_loop
launch.launchers.screen.next_commands launch.launchers.screen.run_summary
launch.launchers.supervision.error_kinds launch.launchers.node_processes.prepared_process
launch.launchers.supervision.node_thread launch.launchers.threads
launch.loggers.run_loggers launch.nodes.coordination.coordinator
launch.nodes.actor launch.nodes.acting.actor
launch.nodes.coordination.curriculum_progress launch.nodes.coordination.run_hooks
launch.nodes.coordination.node_incarnations launch.nodes.coordination.report_intake
launch.nodes.coordination.run_ending launch.nodes.coordination.run_limits
launch.nodes.coordination.step_rates launch.nodes.coordination.run_metrics
launch.nodes.devices launch.processes.devices
launch.nodes.episodes.training_pictures launch.pictures.training_pictures
launch.nodes.evaluation.prepared_evaluator launch.nodes.evaluation.evaluator
launch.nodes.learning.held_snapshots launch.nodes.acting.weight_store
launch.nodes.learning.weight_store launch.nodes.acting.weight_store
launch.nodes.recorded.episode_sender launch.nodes.episodes.episode_sender
launch.policy_settings launch.experiments.policy_settings
launch.run_directory.counter_sources launch.run_directory.checkpoints
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
networks.action_bounds networks.actions.action_bounds
networks.actor_critic networks.actor_critics.actor_critic
networks.actor_critics.discrete_actor_critic networks.actor_critics.actor_critic
networks.flatten networks.torsos.flatten
networks.legal_actions networks.actions.legal_actions
networks.residual networks.torsos.residual
own_modules settings.own_modules
replay.checkpoints replay.servers.checkpoints
replay.demonstrations replay.reading.demonstrations
replay.handle replay.servers.handle
replay.item_format replay.writing.item_format
replay.item_writer replay.writing.item_writer
replay.priorities replay.reading.priorities
replay.queue_dataset replay.reading.queue_dataset
replay.reading.away_shards replay.reading.whole_batches
replay.reading.single_threaded_map replay.reading.queue_dataset
replay.reading.split_batches replay.reading.read_ahead
replay.sequences replay.writing.sequences
replay.server replay.servers.server
replay.servers.heartbeat replay.servers.handle
replay.sharded_sampling replay.reading.sharded_sampling
replay.tables replay.servers.tables
replay.windows replay.writing.windows
replay.writing.discounted_returns replay.writing.sequences
replay.writing.duplicate_filter replay.servers.handle
replay.writing.per_environment_writers replay.writing.batch_writers
replay.writing.recent_records replay.writing.item_writer
replay.writing.whole_batch_writer replay.writing.batch_writers
replay_settings settings.replay_settings
setting_arguments settings.setting_arguments
setting_descriptions settings.setting_descriptions
setting_types settings.setting_types
settings.foreign_names messages.foreign_names
tracing_lock runtime.tracing_lock
"""
"""Old and new names of modules and packages, without the library's."""
_MOVED_NAMES = """
agents.agent:Watched agents.watched
agents.learning.gradient_learner:make_optimizer agents.learning.optimizers
agents.learning.on_policy:check_sizes agents.learning.on_policy:check_batch_sizes
agents.registry:AGENTS,agent_name agents.agent_names
cli.run_arguments:named_weights cli.run_arguments:named_reference
cli.seed_series:next_commands cli.seed_series:commands_after
cli.seed_series:notify cli.seed_series:print_now
environments:episode_limit_advice environments.checks.episode_limits
environments.adapters.gymnasium_batch:GymnasiumVectorBatch environments.adapters.gymnasium_vector_batch
environments.batches.encoding:spec environments.batches.encoding:specs_in
environments.batches.encoding:with_values environments.batches.encoding:with_part_values
environments.checks.trial:Trial environments.checks.trial:EnvironmentTrial
environments.checks.trial:check_finite environments.batches.observation_values:check_finite_observation
environments.external.spaces_only:PREFIX environments.external.spaces_only:EXTERNAL_PREFIX
environments.mixtures:Part environments.mixtures:MixturePart
environments.recorded.episode_columns:Leaf environments.recorded.episode_columns:ColumnLeaf
launch.experiments.experiment:ActorCount,CheckpointCount,EnvironmentCount,Gigabytes launch.experiments.parts.quantities
launch.experiments.experiment:NO_STEP_LIMIT launch.experiments.parts.acting_part
launch.experiments.experiment:NodeCount,Port,Seconds,Seed,StepCount,ThreadCount launch.experiments.parts.quantities
launch.launchers.addresses:fixed_address launch.nodes.node
launch.launchers.hosts.membership:Command launch.launchers.hosts.membership:HostOrder
launch.launchers.hosts.membership:Heartbeat launch.launchers.hosts.membership:HostHeartbeat
launch.launchers.ray.own_loop:Parts launch.launchers.ray.own_loop:Servers
launch.launchers.ray.own_loop:start_parts launch.launchers.ray.own_loop:start_servers
launch.launchers.ray.workers:AddressBook,BookedAddress launch.launchers.ray.address_book
launch.launchers.supervision.other_hosts:SingleHost launch.launchers.supervision.other_hosts:OtherHosts
launch.nodes.acting.actor:compile_policy launch.nodes.acting.compiled_policies
launch.nodes.acting.actor:make_environments launch.nodes.acting.acting_environments
launch.nodes.evaluation.video:EpisodeRecorder launch.nodes.evaluation.video:VideoRecorder
launch.nodes.progress:Heartbeat launch.nodes.progress:NodeHeartbeat
launch.nodes.reports.messages:plain launch.nodes.reports.messages:plain_message
launch.program:FIRST_LEARNER_RULES,OTHER_LEARNER_RULES launch.node_rules
launch.program:describe_graph,handle_of,kinds_of,nodes_of launch.program_nodes
launch.trained.export:TensorSpecs launch.trained.traced_policy
launch.trained.saved_runs:SavedPolicy launch.trained.saved_runs:RestoredPolicy
messages.foreign_names:reference_tables messages.foreign_names:foreign_name_tables
networks.action_policy:Evaluation networks.action_policy:ActionEvaluation
networks.actions.action_parts:Part networks.actions.action_parts:ActionPart
networks.tensor_words:described networks.tensor_words:tensors_text
replay:check_settings replay.servers.checkpoints:check_saved_tables
replay.reading.whole_batches:chosen_environments replay.reading.whole_batches:chosen_windows
replay.servers.checkpoints:check_settings replay.servers.checkpoints:check_saved_tables
replay.servers.handle:ITEM_ID_BYTES,WRITER_BITS,item_id replay.packing
studies.comparison.comparison:Improvement studies.comparison.comparison:VariantImprovement
studies.tuning.search_space:describe studies.tuning.search_space:values_text
studies.tuning.trial:Reporter studies.tuning.trial:TrialReporter
studies.tuning.trial:number_of studies.tuning.trial:trial_number
transitions:counts transitions:valid_transitions
"""
"""Names that left a module that still exists, their new modules, and what they are called there if not the same."""


class MovedModules:
    """Finds the modules of this library that have moved, and adds the names that others have lost."""

    def __init__(self) -> None:
        self._moved = dict(line.split() for line in _MOVED.split("\n") if line)
        self._names: dict[str, dict[str, tuple[str, str]]] = {}
        for old, new in (line.split() for line in _MOVED_NAMES.split("\n") if line):
            module, _, names = old.partition(":")
            home, _, renamed = new.partition(":")
            for name in names.split(","):
                self._names.setdefault(module, {})[name] = (f"{_LIBRARY}.{home}", renamed or name)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith(f"{_LIBRARY}."):
            return None
        if self._new_name(name):
            return importlib.machinery.ModuleSpec(name, self)  # type: ignore[arg-type]
        names = self._names.get(name.removeprefix(f"{_LIBRARY}."))
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if names else None
        if names and spec and spec.loader:
            # On the loader itself, so that it remains one that Python's other tools know.
            execute = spec.loader.exec_module
            spec.loader.exec_module = lambda module: _execute(execute, module, names)  # type: ignore[method-assign]
        return spec

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


def _execute(execute: Callable[[ModuleType], None], module: ModuleType, names: Mapping[str, tuple[str, str]]) -> None:
    """Executes a module; names that have left it are imported from their new homes when they are first used."""

    def __getattr__(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        home, new = names[name]
        warnings.warn(f"{module.__name__}.{name} is now {home}.{new}", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(home), new)

    execute(module)
    module.__getattr__ = __getattr__  # type: ignore[method-assign]


def find_moved_modules() -> None:
    """Lets imports find modules by their old names, before Python would look for them."""
    sys.meta_path.insert(0, MovedModules())
