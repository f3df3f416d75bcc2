"""The settings of a run, its agent and its launcher as options, for `--help`."""

import dataclasses
import json
import re
import textwrap
from collections.abc import Mapping

from ...settings.nested_settings import Field, declared_fields
from ...settings.setting_descriptions import described
from .experiment import Experiment
from .option_parsing import option_name
from .settings import plain, setting_fields

HELP_END = """\
An entry of nested settings is set by its name (--env-options.size 5), and removed likewise
(--no-env-options.size); --no-NAME switches a flag off.

A title, as in: see "Metrics", is that of a page of the documentation, which is in docs/ of
Callboard's repository; `make docs` there makes a site of it."""
PAGES = {
    "environments": "Environments",
    "guides/callback": "Metrics and callbacks",
    "guides/curriculum": "Tasks and curricula",
    "guides/external_simulators": "External simulators",
    "guides/loggers": "TensorBoard, W&B, MLflow and Prometheus",
    "guides/multi_agent": "Several agents",
    "guides/own_node": "A node in the graph",
    "guides/policies": "Several policies",
    "guides/recorded_data": "Recorded data and Minari",
    "guides/warm_start": "Starting from another run",
    "hosts": "Several hosts",
    "inference": "Central inference",
    "learners": "Several devices and learners",
    "metrics": "Metrics",
    "stopping": "Stopping and resuming a run",
}
"""Titles of the pages that descriptions of settings name, by their file in `docs/`."""
_WIDTH = 110
_FIRST_TITLE = "most runs"
_FIRST = (
    "env",
    "max_steps",
    "stop_return",
    "seed",
    "run_dir",
    "actors",
    "envs_per_actor",
    "agent.optimizer.learning_rate",
    "agent.actor_optimizer.learning_rate",
    "agent.critic_optimizer.learning_rate",
    "agent.discount",
    "agent.batch_size",
    "agent.unroll_length",
    "agent.n_step",
    "agent.epochs",
    "agent.minibatches",
    "agent.entropy_cost",
    "agent.epsilon",
    "agent.replay.size",
    "agent.replay.min_size",
    "agent.replay.samples_per_insert",
    "agent.frame_stack",
    "agent.network.torso",
    "agent.network.hidden_sizes",
    "agent.network.core",
)


def format_first_help(agent: str | None) -> str:
    """Lists the settings that most runs set, of the run and of an agent, as options.

    Args:
      agent: name of the agent; None for the run's alone.
    """
    fields = declared_fields(Experiment) if agent is None else setting_fields(agent)
    return format_options(_FIRST_TITLE, {key: fields[key] for key in _FIRST if key in fields})


def format_help(agent: str) -> str:
    """Lists the other settings of a run with that agent as options, with their descriptions and defaults."""
    fields = {key: field for key, field in setting_fields(agent).items() if key not in _FIRST}
    of_agent = {key: field for key, field in fields.items() if key.startswith("agent.")}
    of_run = {key: field for key, field in fields.items() if key not in of_agent}
    return "\n\n".join([format_options("the run", of_run), format_options(f"the agent {agent}", of_agent)])


def format_options(title: str, fields: Mapping[str, Field]) -> str:
    """Lists settings as options, with their descriptions and defaults.

    Args:
      title: whose options they are.
      fields: the settings by flat name.
    """
    lines = [f"options of {title}:"]
    for key, (hint, default, text) in fields.items():
        shown = "needed" if default is dataclasses.MISSING else json.dumps(plain(default))
        lines.append(f"  {option_name(key)}: {described(hint)} ({shown})")
        lines += textwrap.wrap(_with_titles(text), _WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(lines)


def _with_titles(text: str) -> str:
    """Returns a text with the titles of pages in place of their files, which an installation does not have."""
    return re.sub(r"docs/([\w/]+)\.md", lambda found: f'"{PAGES[found[1]]}"', text)
