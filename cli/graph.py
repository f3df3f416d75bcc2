"""`callboard graph`: shows the program graph of a run without starting it."""

import pathlib
from collections.abc import Sequence

from .. import environments
from ..errors import printable_lines
from ..launch.experiments.environment_check import environment_check
from ..launch.experiments.run_checks import check_experiment, check_settings
from .experiment_options import define_experiment, experiment_help, experiment_parser, parse_arguments


def main(arguments: Sequence[str]) -> int:
    parser = experiment_parser("graph", "Shows the program graph of a run without starting it.")
    known, agent, options = parse_arguments(parser, arguments)
    if known.help:
        print(experiment_help(parser, agent))
        return 0
    settings = define_experiment(agent, known.recipe, options)
    experiment = settings.without_agent()
    check_settings(experiment)
    with environment_check(experiment, experiment.node_timeout):
        environments.check(experiment.env, experiment.options_of_env)
        from ..launch.experiments.checked_run import Run
        from ..launch.program import make_program
        from ..launch.program_nodes import describe_graph
        from ..launch.run_directory.layout import RunDirectory

        experiment = settings.experiment()
    # The learner's devices may be those of another machine.
    run = Run.of(experiment, check_experiment(experiment, learners_here=0), RunDirectory(pathlib.Path("runs")))
    print(printable_lines(describe_graph(make_program(run))))
    return 0
