"""`callboard export`: writes the policy of a run as a SavedModel or an ONNX model."""

import pathlib
from collections.abc import Sequence

from ..errors import printable
from ..launch.experiments.settings import read_settings
from .command_parser import CommandParser
from .run_arguments import add_run_arguments, chosen_run, named_reference

_NAMES = {"saved-model": "SavedModel", "onnx": "ONNX model"}


def main(arguments: Sequence[str]) -> int:
    parser = CommandParser("callboard export", description="Writes the policy of a run as a SavedModel or ONNX model.")
    add_run_arguments(parser)
    parser.add_argument("directory", type=pathlib.Path, help="the directory of the export, new or empty")
    parser.add_argument("--format", choices=tuple(_NAMES), default="saved-model", help="what is written (saved-model)")
    parser.add_argument("--mode", choices=("greedy", "sampled"), help="best or sampled actions; as in evaluations")
    parser.add_argument("--epsilon", type=float, help="rate of random actions, for agents that learn action values")
    known = parser.parse_args(arguments)
    reference = named_reference(known)
    # The environment is not needed: the run has saved its spaces.
    settings = read_settings(reference.run, trust=known.trust)
    with chosen_run(reference) as (directory, checkpoint):
        experiment = settings.experiment()
        from ..launch.trained.evaluation import with_evaluation_settings
        from ..launch.trained.export import export_run

        experiment = with_evaluation_settings(experiment, known.mode, known.epsilon)
        exported = export_run(experiment, directory, known.directory, checkpoint, known.format)
    policy = exported.policy.relative_to(directory.path)
    print(printable(f"{reference.run}/{policy} is now the {_NAMES[known.format]} {known.directory}"))
    for name in ("inputs", "outputs"):
        tensors = getattr(exported.signatures, name).items()
        print(printable(f"{name}: " + ", ".join(f"{leaf} {spec.dtype.name}{spec.shape}" for leaf, spec in tensors)))
    return 0
