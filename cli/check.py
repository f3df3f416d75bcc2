"""`callboard check`: looks closely at an environment, without a run."""

import json
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..environments import environment_text
from ..environments.checks.examination import Examination, examine_environment
from ..environments.checks.trial import Phase
from ..errors import CallboardError, printable
from ..launch.experiments.environment_check import EnvironmentCheck
from ..launch.experiments.settings import parse_settings
from ..settings.named_objects import pickled_with_program
from .command_parser import CommandParser
from .experiment_options import split_options

_SETTINGS = ("env_options", "env_python", "env_wrappers", "agent_groups", "agent_index", "agent_padding", "agent_state")
"""Settings of a run that decide what its environment is."""
_ADVICE: Mapping[Phase, str] = {"step": "let it return sooner, or increase --timeout"}


def main(arguments: Sequence[str]) -> int:
    parser = CommandParser(
        "callboard check",
        description="Looks closely at an environment: spaces and values, whole episodes of random actions, whether the "
        "same seed gives the same, and speed.  It runs in a process of its own, where it may hang or crash.",
        epilog="--env-options.NAME VALUE, --env-wrappers, --env-python, and --agent-groups, --agent-index, "
        "--agent-padding and --agent-state for several agents, are those of `callboard train`.",
    )
    parser.add_argument("env", metavar="ENV", help="the name of an environment, as --env of `callboard train` takes it")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="seconds to play random actions (3)")
    parser.add_argument("--timeout", type=float, default=30.0, metavar="S", help="seconds that a step may take (30)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the environment and of the actions (1)")
    parser.add_argument("--picture", metavar="FILE", help="write a picture of the environment as PNG")
    parser.add_argument("--json", action="store_true", help="print JSON")
    settings, others = split_options(arguments, _SETTINGS)
    known = parser.parse_args(others)
    if known.seconds <= 0 or known.timeout <= 0 or known.seed < 0:
        raise CallboardError("--seconds and --timeout must be positive, and --seed at least 0")
    if known.picture is not None and not known.picture.endswith(".png"):
        raise CallboardError(f"--picture writes PNG: name a file that ends in .png, not {known.picture}")
    experiment = parse_settings("ppo", {"env": known.env}, settings).without_agent()
    examination = Examination(
        experiment.env,
        experiment.options_of_env,
        experiment.agent_options,
        batch_size=2,
        seed=known.seed,
        play_seconds=known.seconds,
        picture=known.picture and str(pathlib.Path(known.picture).absolute()),
    )
    warnings: list[str] = []

    def show(warning: str) -> None:
        # At once: what is said may be that a call does not return.
        print(printable(f"warning: {warning}"), file=sys.stderr, flush=True)
        warnings.append(warning)

    name, pickled = environment_text(experiment.env), pickled_with_program(examination)
    check = EnvironmentCheck(name, pickled, known.timeout, show, examine_environment, _ADVICE)
    try:
        found: list[dict[str, Any]] = check.wait()
    finally:
        check.close()
    if known.json:
        print(json.dumps({"environments": found, "warnings": warnings}))
        return 0
    print("\n\n".join("\n".join(map(printable, _report(one))) for one in found))
    if not warnings:
        print("nothing wrong was found")
    return 0


def _report(found: Mapping[str, Any]) -> Iterator[str]:
    rows: list[tuple[str, str]] = [("environment", found["environment"])]
    for agent, spaces in found["spaces"].items():
        of = f" of {agent}" if agent else ""
        for kind in ("observation", "action"):
            for place, text in spaces[kind].items():
                rows.append((f"{kind}{of}", f"{place}: {text}" if place else text))
    if found.get("options"):
        rows.append(("options", ", ".join(f"{name} {value}" for name, value in found["options"].items())))
    rows += [(f"seen {place}".strip(), f"{low:g} to {high:g}") for place, (low, high) in found["observed"].items()]
    low, high = found["rewards"]
    rows.append(("rewards", f"{low:g} to {high:g}"))
    if found["episodes"]:
        least, mean, most = found["returns"]
        ends = ", ".join(f"{found[end]:,} {end}" for end in ("terminated", "truncated") if found[end])
        rows.append(("episodes", f"{found['episodes']:,} of {found['mean_length']:,.1f} steps: {ends}"))
        rows.append(("returns", f"{mean:g}, from {least:g} to {most:g}"))
    rows.append(("same seed", "gives the same" if found["deterministic"] else f"no: {found['difference']}"))
    rows.append(("speed", f"{found['steps_per_second']:,.0f} steps/s with one environment and random actions"))
    if "picture" in found:
        rows.append(("picture", found["picture"]))
    width = max(len(name) for name, _ in rows)
    return (f"{name.ljust(width)}  {text}" for name, text in rows)
