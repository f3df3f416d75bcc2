"""Puts the policy of a run into a zoo with the score of an evaluation, and evaluates policies of zoos again."""

import json
import math
import os
import pathlib
import re
import statistics
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ... import __version__
from ...errors import CallboardError, named_as, writing
from ...files.atomic_files import check_writable, directory_draft
from ...files.guarded_files import read_regular
from ...launch.experiments.settings import read_experiment
from ...launch.experiments.yaml_files import format_yaml, read_yaml
from ...launch.run_directory.best_policy import BestPolicy
from ...launch.run_directory.found_runs import find_runs
from ...launch.run_directory.layout import POLICIES, RunDirectory
from ...launch.run_directory.remote_storage import Storage, is_url
from ...launch.saved.saved_policies import saved_spec
from ...launch.trained.evaluation import evaluate_run, with_evaluation_settings
from ..comparison.run_results import RunResult, read_results
from .zoo_policies import CARD, FORMAT, MOST_BYTES, WEIGHTS, Card, ZooPolicy, check_name, copy_policy, parse_card

_ERRORS = 3.0
"""Standard errors by which two means may differ."""
_ROUNDING = 0.01
"""Part of the mean by which they may differ in any case."""
_MOST_POINTS = 1_000
"""Points of a curve on a card; of more, evenly spaced ones are shown."""
_PATHS = ("dataset", "init_from")
"""Settings that hold paths, and that a policy does not act by."""


class Repeated(NamedTuple):
    """The recorded score of a policy and that of another evaluation."""

    card: Card
    mean: float
    std: float

    @property
    def most(self) -> float:
        """The largest difference that chance explains."""
        spread = math.hypot(self.card.std, self.std) / math.sqrt(self.card.episodes)
        return _ERRORS * spread + _ROUNDING * abs(self.card.mean)

    @property
    def agrees(self) -> bool:
        """Whether the difference is at most that."""
        return abs(self.mean - self.card.mean) <= self.most


def best_run(folder: str) -> str:
    """Returns the run with the best evaluation: the folder itself, or one in it, such as one of several seeds.

    Raises:
      CallboardError: there is no run, or its latest weights are meant, or it has no evaluations, or several policies,
        or runs are of several environments.
    """
    if is_url(folder):
        raise CallboardError(f"zoo push takes runs of this machine: copy {folder} to a folder")
    runs = [RunDirectory(pathlib.Path(run)) for run in find_runs(folder)]
    if not os.path.exists(folder) and folder.endswith("@latest"):
        raise CallboardError(f"a zoo takes the weights with the best evaluation: name {folder.removesuffix('@latest')}")
    means = [BestPolicy(run, read_only=True).mean_return() for run in runs]
    best = runs[means.index(max(means))]
    whole = _whole_run(best)
    if whole.policies:
        raise CallboardError(
            f"the run in {whole.path} has policies that play together: a zoo takes a run of one policy"
        )
    settings = [
        read_yaml(run.experiment, links=False) for run, mean in zip(runs, means, strict=True) if mean > -math.inf
    ]
    envs = {json.dumps([one.get("env"), one.get("env_options")]) for one in settings if isinstance(one, dict)}
    if len(envs) > 1:
        raise CallboardError(f"the runs in {folder} are of several environments: name one, such as {best.path}")
    if max(means) == -math.inf:
        for run in runs:
            if run.best_policy.exists():
                raise CallboardError(f"{run.best_policy} is damaged; replace it by a copy, or push another run")
        raise CallboardError(f"{best.path} has no weights with the best evaluation: train it with evaluations")
    return str(best.path)


def _whole_run(run: RunDirectory) -> RunDirectory:
    """Returns the run of which a directory is that of one of the policies; else the run itself."""
    above = run.path.absolute().parent
    directory = RunDirectory(above.parent)
    return directory if above.name == POLICIES and directory.experiment.exists() else run


def push_policy(
    run: str, zoo: str, name: str | None, episodes: int, trust: bool, notify: Callable[[str], None]
) -> ZooPolicy:
    """Evaluates the best policy of a run and puts it into a zoo.

    Args:
      run: see `best_run`.
      zoo: a folder or a URL.
      name: name of the policy; None for agent and environment.
      episodes: episodes of the evaluation.
      trust: whether the run may belong to another user.
      notify: receives lines about the evaluation.

    Raises:
      CallboardError: there is no such run, or the zoo has a policy of that name.
    """
    run = best_run(run)
    directory = RunDirectory(pathlib.Path(run))
    results = read_results([run], include_running=True)
    if not results.runs:
        raise CallboardError(f"{run} cannot be shown: {'; '.join(results.left_out)}")
    trained = results.runs[0]
    if name is None:
        name = re.sub(r"[^a-z0-9]+", "-", f"{trained.agent}-{trained.env}".lower()).strip("-")
    check_name(name)
    zoo = zoo.removeprefix("file://")
    if Storage(f"{zoo}/{name}").exists(CARD) if is_url(zoo) else (pathlib.Path(zoo) / name).exists():
        raise CallboardError(f"there is a policy {name} in {zoo}: choose another name with --name")
    files = _files(directory)
    if not is_url(zoo):
        with writing(zoo):
            check_writable(pathlib.Path(zoo, name).absolute(), directory=True)
    card = _checked(_card(trained, episodes))
    mean, std = _score(directory, episodes, trained.seed, trust, notify)
    card = _checked(card._replace(mean=mean, std=std))
    files[CARD] = (json.dumps({"format": FORMAT, **card._asdict()}, indent=1) + "\n").encode()
    with writing(zoo, (Exception,)):  # Each storage backend raises its own errors.
        if is_url(zoo):
            with tempfile.TemporaryDirectory(prefix="callboard-") as local:
                _write(pathlib.Path(local), files)
                for file in files:  # The card last: without it there is no policy.
                    Storage(f"{zoo}/{name}").store(file, pathlib.Path(local))
        else:
            with directory_draft(pathlib.Path(zoo, name).absolute()) as draft:
                _write(draft, files)
    return ZooPolicy(name, zoo, card)


def _card(trained: RunResult, episodes: int) -> Card:
    """Returns the card of a run's policy, without a score."""
    finite = np.flatnonzero(np.isfinite(trained.values))
    shown = finite[np.unique(np.linspace(0, len(finite) - 1, min(_MOST_POINTS, len(finite))).astype(int))]
    curve = [[int(trained.steps[i]), round(float(trained.values[i]), 3)] for i in shown]
    origin = trained.agent, trained.env, trained.seed, trained.total_steps
    return Card(*origin, 0.0, 0.0, episodes, curve, __version__, trained.counted)


def _checked(card: Card) -> Card:
    """Returns a card that zoos accept.

    Raises:
      CallboardError: they would not.
    """
    try:
        return parse_card({"format": FORMAT, **card._asdict()})
    except ValueError as error:
        raise CallboardError(f"no zoo would accept this policy: {error}") from error


def _files(directory: RunDirectory) -> dict[str, bytes]:
    """Returns the files of a policy beside its card.

    Raises:
      CallboardError: the run lacks one, or it is damaged or larger than a policy in a zoo may be.
    """
    if saved_spec(directory) is None:
        raise CallboardError(f"{directory.path} has no environment.json: resume the run, which writes it")
    settings = read_yaml(directory.experiment, links=False)
    settings.pop("run_dir", None)
    settings.update({name: _without_folders(settings[name]) for name in _PATHS if name in settings})
    weights = BestPolicy(directory, read_only=True).path() or directory.best_policy
    try:
        return {
            "experiment.yaml": format_yaml(settings, marked=True).encode(),
            "environment.json": read_regular(directory.environment),
            WEIGHTS: read_regular(weights, MOST_BYTES),
        }
    except OSError as error:
        raise CallboardError(f"{directory.path} cannot be offered: {error.strerror}") from error


def _without_folders(value: Any) -> Any:
    """Returns a setting with the last part of each absolute path, which is one of this machine, in its place."""
    if isinstance(value, list):
        return [_without_folders(each) for each in value]
    return pathlib.PurePath(value).name if isinstance(value, str) and os.path.isabs(value) else value


def evaluate_policy(policy: ZooPolicy, trust: bool, notify: Callable[[str], None]) -> Repeated:
    """Plays the episodes of the recorded score again.

    Raises:
      CallboardError: as `copy_policy`, or the policy cannot be played.
    """
    with tempfile.TemporaryDirectory(prefix="callboard-") as local:
        path, card = pathlib.Path(local, policy.name), policy.card
        with named_as(path, f"{policy.place}/{policy.name}"):
            copy_policy(policy, path, trust)
            mean, std = _score(RunDirectory(path), card.episodes, card.seed, True, notify)
        return Repeated(card, mean, std)


def _score(
    directory: RunDirectory, episodes: int, seed: int, trust: bool, notify: Callable[[str], None]
) -> tuple[float, float]:
    experiment = with_evaluation_settings(read_experiment(directory.path, trust=trust), seed=seed)
    played = evaluate_run(experiment, directory, episodes, "best", 0, notify)
    returns = [episode.episode_return for episode in played.episodes]
    return statistics.fmean(returns), statistics.pstdev(returns)


def _write(directory: pathlib.Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(content)
