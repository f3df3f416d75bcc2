"""Puts the policy of a run into a zoo with the score of an evaluation, and evaluates policies of zoos again."""

import json
import math
import pathlib
import re
import statistics
import tempfile
from collections.abc import Callable
from typing import NamedTuple

from ... import __version__
from ...errors import CallboardError, named_as, writing
from ...files.atomic_files import check_writable, directory_draft
from ...files.guarded_files import read_regular
from ...launch.experiments.settings import read_experiment
from ...launch.experiments.yaml_files import format_yaml, read_yaml
from ...launch.run_directory.best_policy import BestPolicy
from ...launch.run_directory.found_runs import find_runs
from ...launch.run_directory.layout import RunDirectory
from ...launch.run_directory.remote_storage import Storage, is_url
from ...launch.saved.saved_policies import saved_spec
from ...launch.trained.evaluation import evaluate_run, with_evaluation_settings
from ..comparison.run_results import read_results
from .zoo_policies import CARD, FORMAT, MOST_BYTES, WEIGHTS, Card, ZooPolicy, check_name, copy_policy

_ERRORS = 3.0
"""Standard errors by which two means may differ."""
_ROUNDING = 0.01
"""Part of the mean by which they may differ in any case."""


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
      CallboardError: there is no run, or it has no evaluations, or several policies.
    """
    if is_url(folder):
        raise CallboardError(f"zoo push takes runs of this machine: copy {folder} to a folder")
    runs = [RunDirectory(pathlib.Path(run)) for run in find_runs(folder)]
    means = [BestPolicy(run, read_only=True).mean_return() for run in runs]
    best = runs[means.index(max(means))]
    if max(means) == -math.inf:
        for run in runs:
            if run.best_policy.exists():
                raise CallboardError(f"{run.best_policy} is damaged; replace it by a copy, or push another run")
        fix = f"name one in {best.path}/policies" if best.policies else "train it with evaluations"
        raise CallboardError(f"{best.path} has no weights with the best evaluation: {fix}")
    return str(best.path)


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
    name = name or re.sub(r"[^a-z0-9]+", "-", f"{trained.agent}-{trained.env}".lower()).strip("-")
    check_name(name)
    zoo = zoo.removeprefix("file://")
    if Storage(f"{zoo}/{name}").exists(CARD) if is_url(zoo) else (pathlib.Path(zoo) / name).exists():
        raise CallboardError(f"there is a policy {name} in {zoo}: choose another name with --name")
    files = _files(directory)
    if not is_url(zoo):
        with writing(zoo):
            check_writable(pathlib.Path(zoo, name).absolute(), directory=True)
    mean, std = _score(directory, episodes, trained.seed, trust, notify)
    points = zip(trained.steps.tolist(), trained.values.tolist(), strict=True)
    curve = [[int(steps), round(value, 3)] for steps, value in points]
    card = Card(trained.agent, trained.env, trained.seed, trained.total_steps, mean, std, episodes, curve, __version__)
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


def _files(directory: RunDirectory) -> dict[str, bytes]:
    """Returns the files of a policy beside its card.

    Raises:
      CallboardError: the run lacks one, or it is damaged or larger than a policy in a zoo may be.
    """
    if saved_spec(directory) is None:
        raise CallboardError(f"{directory.path} has no environment.json: resume the run, which writes it")
    settings = read_yaml(directory.experiment, links=False)
    settings.pop("run_dir", None)  # A path of this machine.
    weights = BestPolicy(directory, read_only=True).path() or directory.best_policy
    try:
        return {
            "experiment.yaml": format_yaml(settings, marked=True).encode(),
            "environment.json": read_regular(directory.environment),
            WEIGHTS: read_regular(weights, MOST_BYTES),
        }
    except OSError as error:
        raise CallboardError(f"{directory.path} cannot be offered: {error.strerror}") from error


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
