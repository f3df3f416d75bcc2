"""What commands and launchers print holds no control codes that a name, a file or another machine has brought along."""

import ast
import io
import pathlib

from parsed_modules import parsed
from rich.console import Console

from callboard.launch.launchers.screen.display import RunProgress, progress_view
from callboard.launch.launchers.screen.piece_progress import _in_cell
from callboard.studies.comparison.comparison_tables import TextTable
from callboard.studies.tuning.records import Trial, trials_table

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("cli", "studies", "launch", "environments", "agents", "replay", "networks")
CLEAN = ("printable(", "printable_lines(", "json.dumps(", "map(printable, ")
OWN = {
    "parser.format_help().rstrip()": "the command's own options",
    "experiment_help(parser, agent)": "the command's own options",
    "experiment_help(parser, agent, launcher_help(known.launcher))": "the command's own options",
    "_usage()": "the command's own text",
    "f'callboard {__version__}'": "the version",
    "format_recipe(settings.experiment())": "YAML escapes control codes",
    "_file(known.what, known.name).read_text()": "files of this package",
    "json.dumps(names) if known.json else '\\n'.join(names)": "names of this package and of registered environments",
    "trials_table(ordered, tuning.metric, tuning.mode)": "its cells are printable, see below",
    "overview_table(overview, console.width)": "its cells are printable, see tests/cli/test_top.py",
    "table.rich()": "its cells are printable, see tests/cli/test_damaged_files.py",
    "_table(cluster, views)": "names of hosts are printable, see tests/launch/launchers/hosts/test_cluster_file.py",
    "script": "a script, whose words are quoted, to be read by a shell",
    "limits": "our own words",
    "table": "findings of doctor: versions of this machine's packages",
    "view": "fields of the display are printable, see below",
}
NUMBERS = (
    'f"{len(ordered)} of {tuning.trials} trials: ',
    "f'mean of {len(means)} runs ",
    "' '.join((f'{value:g}' for value in returns))",
    "f\"mean {with_deviation(summary['mean'], summary['std'])} over ",
    "f\"{summary['steps']:,} steps, in which ",
    "f'callboard: {OPTION} needs a user and a network namespace",
)
"""Beginnings of lines of numbers, states and words of our own."""


def printed(tree):
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and getattr(call.func, "id", getattr(call.func, "attr", "")) in (
            "print",
            "write",
        ):
            function = ast.unparse(call.func)
            if function == "print" or function.endswith(("console.print", "_console.print")):
                yield from ((call, argument) for argument in call.args)
            elif function in ("sys.stdout.write", "sys.stderr.write") or function.endswith(").print"):
                yield from ((call, argument) for argument in call.args)


def test_every_printed_text_is_made_printable():
    wrong = []
    for path in sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")):
        for call, argument in printed(parsed(path)):
            text = ast.unparse(argument)
            own = isinstance(argument, ast.Constant) or text in OWN or text.startswith(NUMBERS)
            if not own and not any(clean in text for clean in CLEAN):
                wrong.append(f"{path.relative_to(ROOT)}:{call.lineno}: {text}")
    assert not wrong, "\n".join(wrong)


NASTY = "a\x1b]0;title\x07\n\x9b2J[red]b[/red]"
SHOWN = r"a\x1b]0;title\x07\n\x9b2J[red]b[/red]"


def shown(view):
    console = Console(file=io.StringIO(), width=400, highlight=False, force_terminal=False)
    console.print(view)
    return console.file.getvalue()


def test_the_display_of_a_run_shows_names_in_one_line():
    status = {
        "environment_steps": 1,
        "learner_steps": 0,
        "actor/steps_per_second": 0.0,
        "learner/steps_per_second": 0.0,
        f"episode/{NASTY}": 1.0,
        f"episode/{NASTY}_min": 1.0,
        f"episode/{NASTY}_max": 1.0,
        "node_restarts": {NASTY: 1},
    }
    progress = RunProgress(10)
    progress.update(status)
    view = progress_view(progress, status, 0.1, "1 of 10")
    for text in (shown(view), _in_cell(view)["text/plain"]):
        assert text.count(SHOWN) == 2 and "\x1b" not in text and "\x9b" not in text
    assert "\x1b" not in _in_cell(view)["text/html"]


def test_the_table_of_trials_shows_names_in_one_line():
    trial = Trial(number=0, values={NASTY: NASTY}, state="done")
    text = shown(trials_table([trial], NASTY, "max"))
    assert text.count(SHOWN) == 3 and "\x1b" not in text


def test_a_page_in_markdown_takes_no_markup_of_names():
    table = TextTable("t", ["group"], [["<img src=x>|![a](http://b)`c`[d]: e\n# title"]])
    row = table.markdown().splitlines()[-1]
    assert row == r"| \<img src=x>\|![a\](http://b)\`c\`[d\]: e\\n# title |"
    assert TextTable("t", ["IQM"], [["[1.0, 2.0]"]]).markdown().splitlines()[-1] == "| [1.0, 2.0] |"
