"""The settings of a run, its agent and its launcher as options, for `--help`."""

import dataclasses
import json
import textwrap
from collections.abc import Mapping

from ..nested_settings import Field
from ..setting_types import described
from .option_parsing import option_name
from .settings import plain, setting_fields

_WIDTH = 110


def format_help(agent: str) -> str:
    """Lists all settings of a run with that agent as options, with their descriptions and defaults."""
    fields = setting_fields(agent)
    of_agent = {key: field for key, field in fields.items() if key.startswith("agent.")}
    of_run = {key: field for key, field in fields.items() if key not in of_agent}
    return "\n\n".join(
        [
            format_options("the run", of_run),
            format_options(f"the agent {agent}", of_agent),
            "An entry of nested settings is set by its name (--env-options.size 5), and removed likewise\n"
            "(--no-env-options.size); --no-NAME switches a flag off.",
        ]
    )


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
        lines += textwrap.wrap(text, _WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(lines)
