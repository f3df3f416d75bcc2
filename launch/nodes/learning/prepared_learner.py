"""Builds the networks, policy, learner and batches of a learner node, new or from a checkpoint."""

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import launchpad as lp
import tensorflow as tf

from ....agents.agent import Agent, Learner, Policy
from ....agents.fast_function import compiled_by_xla
from ....agents.learning.live_settings import LiveSettings
from ....agents.policies.acting import trace_layout
from ....agents.policies.output_checks import check_module
from ....agents.variables.frozen_weights import FrozenWeights
from ....agents.variables.weight_names import named_weights
from ....data import Layout
from ....files.atomic_files import write_file
from ....networks.summary import summarize_networks
from ....replay import Elements, ReplayDataset, ReplayHandle, made_dataset
from ....runtime.tracing_lock import TRACING
from ....settings.setting_types import texts_of
from ...experiments.checked_run import Run
from ...experiments.parts.placement_part import PlacementPart
from ...processes.devices import describe_devices, make_strategy, share_first_learners_state, take_devices
from ...run_directory.checkpoints import Checkpoints
from ...run_directory.layout import RunDirectory
from ...saved.warm_start import initialize
from ..node import NodeContext
from ..proxy_bypass import bypass_proxies


class PreparedLearner(NamedTuple):
    """The parts that a learner node trains, and the tools for it."""

    learner: Learner
    """Makes the learner steps."""
    policy: Policy
    """Acts with the networks that are trained."""
    variables: Sequence[tf.Variable]
    """The policy's variables."""
    modules: dict[str, Any]
    """The modules that a checkpoint contains besides the policy's weights, by name."""
    live: LiveSettings
    """The agent's settings that may change."""
    frozen: FrozenWeights
    """The weights that no step changes."""
    strategy: tf.distribute.Strategy
    """Distributes the steps over the devices of all learners."""
    layout: Layout
    """The layout of the run, with the record that replay contains."""
    steps: int
    """Learner steps that the run has made."""
    done: float
    """The part of the run that was done at the checkpoint that is continued from."""


def prepare_learner(
    context: NodeContext,
    run: Run,
    rank: int,
    peers: Sequence[lp.Address],
    checkpoints: Checkpoints,
    publish: Callable[[Sequence[tf.Variable], int], None],
) -> PreparedLearner:
    """Builds what a learner trains; with several learners, waits for the others.

    Args:
      context: context of the node.
      run: the run.
      rank: index of this learner.
      peers: addresses for the collectives between the learners, one per learner.
      checkpoints: checkpoints of the run; the newest is continued from.
      publish: called with the policy's variables and the learner step as soon as their values are those to begin with.
    """
    agent, progress = run.agent, context.progress
    if len(peers) > 1:
        progress.waits("the other learners")
    strategy = _make_strategy(context, run.placement, rank, peers)
    if len(peers) == 1:
        progress.works_slowly("building networks")
    tf.keras.utils.set_random_seed(run.placement.seed)
    with TRACING, strategy.scope():
        networks = agent.make_networks(run.layout)
        check_module(agent, "make_networks", networks)
        policy = agent.make_policy(networks, "train")
        check_module(agent, "make_policy", policy)
        variables = policy.variables
        latest = checkpoints.latest()
        frozen = FrozenWeights(networks, texts_of(run.warm_start.freeze))
        if latest is None:
            if run.warm_start.init_from is not None and rank == 0:
                progress.works_slowly("reading the weights to begin with")
                context.notify(initialize(run.warm_start, networks, policy))
            # Before the learner is built: actors wait for the weights.
            publish(variables, 0)
        live = LiveSettings(agent, run.layout.max_steps, run.limits.max_learner_steps)
        with compiled_by_xla(run.placement.jit_compile):
            learner = live.agent.make_learner(networks, strategy, run.layout)
        check_module(agent, "make_learner", learner)
    if rank == 0:
        networks_line = write_network_table(run.directory, networks)
        if latest is None:
            context.notify(networks_line)
    modules: dict[str, Any] = {"learner": learner, "networks": networks}
    steps, done = 0, 0.0
    if latest is not None:
        steps = checkpoints.restore(latest, modules, variables)
        counts = checkpoints.counter_sources().values()
        done = run.acting.part_done(sum(source.get("environment_steps", 0) for source in counts), steps)
        publish(variables, steps)
        if rank == 0:
            context.notify(f"continues from learner step {steps:,}")
    if len(peers) > 1:
        # Other hosts may have neither the checkpoint nor the weights to begin with.
        with strategy.scope():
            shared_steps = tf.Variable(steps, trainable=False, dtype=tf.int64)
            shared_done = tf.Variable(done, trainable=False, dtype=tf.float64)
        share_first_learners_state(strategy, rank, {**modules, "steps": shared_steps, "done": shared_done})
        steps, done = int(shared_steps.numpy()), float(shared_done.numpy())
    frozen.remember(variables)
    layout = trace_layout(agent, run.layout, networks)
    return PreparedLearner(learner, policy, variables, modules, live, frozen, strategy, layout, steps, done)


def _make_strategy(
    context: NodeContext, placement: PlacementPart, rank: int, peers: Sequence[lp.Address]
) -> tf.distribute.Strategy:
    if rank > 0:
        threading.Thread(target=_exit_when_stopped, args=(context.stop,), name="exit", daemon=True).start()
    devices = take_devices(placement.learner_devices, placement.gpu_use)
    workers = [peer.resolve() for peer in peers] if len(peers) > 1 else []
    bypass_proxies(*(worker.rpartition(":")[0] for worker in workers))
    if workers:
        context.guard.close_when_open([int(workers[rank].rpartition(":")[2])], context.stop)
    strategy = make_strategy(devices, workers, rank)
    where = describe_devices(devices)
    if where:
        context.notify(where)
    return strategy


def _exit_when_stopped(stop: threading.Event) -> None:
    """Ends the process of a learner other than the first.

    Such a learner has nothing to save, and may be blocked forever in a step.
    """
    stop.wait()
    os._exit(0)


def write_network_table(directory: RunDirectory, networks: Any) -> str:
    """Writes a table of all layers, and the names of all weights, to `network.txt`; returns a line for the user.

    Args:
      directory: the run directory.
      networks: what `Agent.make_networks` has returned.
    """
    summary = summarize_networks(networks)
    weights = [f"{name} {weight.shape.as_list()}" for name, weight in named_weights(networks).items()]
    text = "\n".join([summary.table(), "", "weights by the names that freeze and init_parts take:", *weights, ""])
    try:
        write_file(directory.network, text)
    except OSError as error:
        # A full disk is reported by what matters more.
        logging.warning("%s was not written: %s", directory.network.name, error)
    return f"networks: {summary.line()}, see {directory.network.name}"


def distributed_batches(
    agent: Agent,
    replay: ReplayHandle,
    layout: Layout,
    strategy: tf.distribute.Strategy,
    made: Callable[[ReplayDataset], None],
) -> Iterable[Any]:
    """Returns an iterable of batches, each split over the replicas; `made` is called with the underlying dataset."""
    if strategy is tf.distribute.get_strategy():
        # Distributing batches takes four times as long.  The thread that reads them copies the next one to the GPU,
        # with its dtypes, while the learner computes.
        device = "GPU:0" if tf.config.get_visible_devices("GPU") else None
        dataset = made_dataset(agent.make_replay(layout), replay, tf.distribute.InputContext())
        made(dataset)
        return Elements(dataset.dataset, device)

    def of_pipeline(input_context: tf.distribute.InputContext) -> tf.data.Dataset:
        dataset = made_dataset(agent.make_replay(layout), replay, input_context)
        made(dataset)
        if input_context.num_input_pipelines == 1:
            return dataset.dataset
        # For a finite dataset all learners would agree before each batch whether the data has ended; it is infinite.
        endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        return dataset.dataset.apply(endless)

    return strategy.distribute_datasets_from_function(of_pipeline)


def iterators(make_batches: Callable[[], Iterable[Any]]) -> Callable[[], Iterator[Any]]:
    """Returns a function that makes an iterator over batches; while it traces functions, no other thread does."""

    def make() -> Iterator[Any]:
        with TRACING:
            batches = make_batches()
            if not isinstance(batches, Elements):
                return iter(batches)
        return iter(batches)

    return make
