"""The data sets that a run learns from: found, checked against the agent, and made to fit its replay."""

import contextlib
import dataclasses
import os
from typing import Any

import numpy as np

from ...agents import Agent
from ...agents.agent_names import agent_name
from ...environments import ONLY_AGENT, environment_text, make
from ...environments.recorded import RecordedData, open_data, parse_sources, source_of
from ...environments.recorded.episode_feed import shares_of
from ...errors import CallboardError
from ...settings.replay_settings import ReplaySettings
from ...settings.setting_types import texts_of
from ...specs import ACHIEVED, DESIRED
from .parts.acting_part import ActingPart
from .parts.output_part import RecordingPart
from .policy_plan import Layouts

_EPISODES_COMPARED = 10


def dataset_texts(recording: RecordingPart) -> list[str]:
    """Returns the data sets of an experiment as they were given."""
    return list(filter(None, texts_of(recording.dataset)))


def open_sources(recording: RecordingPart) -> tuple[list[RecordedData], list[float]]:
    """Opens the data sets of an experiment; also returns the share of each.

    Raises:
      CallboardError: one does not exist or holds no episode, or the shares do not fit each other.
    """
    sources = parse_sources(dataset_texts(recording))
    data = [open_data(source.name) for source in sources]
    for one in data:
        if not one.total_episodes:
            raise CallboardError(f"the data set {one.name} holds no episode")
    return data, shares_of(data, [source.share for source in sources])


def check_datasets(recording: RecordingPart, acting: ActingPart, layouts: Layouts) -> None:
    """Rejects data sets from which the agent cannot learn; all of their episodes are read for that.

    Raises:
      CallboardError: names the problem, such as the first difference between the spaces.
    """
    _check_share(recording, acting)
    if not dataset_texts(recording):
        return
    if ONLY_AGENT not in layouts.agents:
        raise CallboardError("a dataset is for an environment with one agent: leave dataset out")
    _replay_of(acting.agent)
    for one in open_sources(recording)[0]:
        one.require_fit(layouts.whole.spec)
        one.check()
        if acting.agent.relabels_goals():
            _check_rewards(one, acting)


def settings_of_recorded_data(recording: RecordingPart, acting: ActingPart) -> dict[str, Any]:
    """Returns the settings that nodes see otherwise: absolute paths of data sets, and a replay that fits them.

    The replay of a run without actors holds every recorded item once, or as many as it has room for, and is full before
    learning begins.  So is the table of demonstrations of a run with actors, if it has one.
    """
    texts = dataset_texts(recording)
    if not texts:
        return {}
    dataset, agent = tuple(map(_absolute, texts)), acting.agent
    replay = _replay_of(agent)
    if acting.actors and not replay.demonstration_share:
        return {"dataset": dataset}
    settings: Any = agent
    data = open_sources(recording)[0]
    items = agent.recorded_items(sum(one.total_steps for one in data), sum(one.total_episodes for one in data))
    if acting.actors:
        most = min(items, replay.demonstration_items or items)
        replay = dataclasses.replace(replay, demonstration_items=max(1, most))
    else:
        size = max(settings.batch_size * acting.replay_shards, min(replay.size, items))
        replay = dataclasses.replace(replay, size=size, min_size=size)
    return {"dataset": dataset, "agent": dataclasses.replace(settings, replay=replay)}


def _check_rewards(data: RecordedData, acting: ActingPart) -> None:
    """Rejects a data set whose rewards are not those that the environment computes, by its first episodes."""
    with contextlib.closing(make(acting.env, 1, [0], acting.options_of_env)) as batch:
        for episode in data.episodes(range(min(data.total_episodes, _EPISODES_COMPARED))):
            achieved, desired = (episode.observation[part][1:] for part in (ACHIEVED, DESIRED))
            try:
                computed = batch.goal_rewards.rewards(0, achieved, desired, [{}] * episode.length)
            except CallboardError as error:
                raise CallboardError(
                    f"{error}; recorded episodes have no infos: set agent.replay.hindsight.goals to 0"
                ) from error
            different = np.flatnonzero(~np.isclose(computed, episode.reward, atol=1e-4))
            if different.size:
                recorded, own = episode.reward[different[0]], computed[different[0]]
                raise CallboardError(
                    f"a reward in the data set {data.name} is {recorded:g}, and that of {environment_text(acting.env)} "
                    f"there is {own:g}: name the env that was recorded, or set agent.replay.hindsight.goals to 0"
                )


def _check_share(recording: RecordingPart, acting: ActingPart) -> None:
    """Rejects a share of demonstrations where there are none, or nothing else."""
    replay = acting.agent.recorded_replay()
    if replay is None or not replay.demonstration_share:
        return
    if not dataset_texts(recording):
        raise CallboardError(
            "agent.replay.demonstration_share is for recorded episodes: name a dataset, or leave it out"
        )
    if not acting.actors:
        raise CallboardError(
            "a run without actors learns from recorded episodes alone: leave agent.replay.demonstration_share out, "
            "or set actors to 1"
        )
    if acting.replay_shards > acting.actors:
        raise CallboardError(
            f"each of {acting.replay_shards} replay shards needs an actor that writes to it beside the "
            f"demonstrations: set replay_shards to at most {acting.actors}"
        )


def _absolute(text: str) -> str:
    """Returns a data set and its share with an absolute path, if it is a path that exists."""
    name = source_of(text).name
    return os.path.abspath(name) + text[len(name) :] if os.path.exists(name) else text


def _replay_of(agent: Agent) -> ReplaySettings:
    replay = agent.recorded_replay()
    if replay is None:
        raise CallboardError(
            f"{agent_name(agent)} learns from its own newest episodes alone; choose an agent with a replay, "
            "such as bc or sac, or leave dataset out"
        )
    return replay
