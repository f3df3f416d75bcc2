"""Names of users in what a run and a study write: odd names, each in every place that takes it."""

import io
import json
import re

import pytest
from rich.console import Console

from callboard.launch.plain_names import in_markdown, in_plot, plain_names
from callboard.studies.comparison.comparison_tables import TextTable
from callboard.studies.tuning.records import Trial, trials_table

ODD = {
    "letters beyond ASCII": "größe 日本 🎲",
    "quotes": "quo'te\" `code`",
    "separators": "../a/b|c\\|d",
    "formula of a spreadsheet": "=cmd|' /C calc'!A0",
    "formula of TeX": "cost $\\frac$ and $5",
    "markup": "[bold red]x[/] <img src=x> ![a](http://b)",
    "private": "_hidden",
    "empty": "",
    "very long": "x" * 300,
    "control characters": "esc\x1b[2J\x07\r\n\x00\u202e",
}
odd = pytest.mark.parametrize("name", ODD.values(), ids=list(ODD))


@odd
@pytest.mark.parametrize("markup", [True, False], ids=["markup", "text"])
def test_terminals_show_names_as_they_are(name, markup):
    trial = Trial(number=0, values={f"env_options.{name}": name}, state="done")
    for table in (trials_table([trial], name, "max"), TextTable(name, [name], [[name]]).rich()):
        output = io.StringIO()
        Console(file=output, markup=markup, width=2000).print(table)
        text = output.getvalue()
        assert all(letter.isprintable() or letter == "\n" for letter in text)
        if name.isprintable():
            assert text.count(name) >= 3


@odd
def test_markdown_has_one_cell_for_a_name(name):
    row = TextTable("t", ["group", "seed"], [[name, "1"]]).markdown().splitlines()[-1]
    # As GitHub reads it: a backslash takes the next character with it, and any other bar ends a cell.
    cells = re.findall(r"(?:\\.|[^\\|])+", row)
    assert len(cells) == 2 and cells[1] == " 1 "
    shown = in_markdown(name)
    assert shown.isprintable() and not re.search(r"(?<!\\)(\\\\)*[<`|]", shown)


@odd
def test_plots_have_labels_for_names(name):
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axes = figure.subplots()
    axes.plot([1, 2], label=in_plot(name))
    axes.set_title(in_plot(name))
    legend = axes.legend()
    figure.savefig(io.BytesIO())
    assert len(legend.get_texts()) == bool(name)
    assert all(letter.isprintable() or letter == "\n" for letter in in_plot(name))


def test_names_for_other_libraries_are_short_and_different():
    names = [*ODD.values(), "x" * 299 + "y", "ö" * 299, "ö" * 300]
    found = plain_names(names, also="/-. :", longest=250)
    assert len(set(found)) == len(names) and max(map(len, found)) == 250
    assert all(re.fullmatch(r"[\w/\-. :]*", name, re.ASCII) for name in found)
    assert found[: len(ODD) - 2] == plain_names(names, also="/-. :")[: len(ODD) - 2]


def test_tensorboard_has_settings_and_metrics_with_any_names(tmp_path):
    import tensorflow as tf

    from callboard.launch.run_directory.tensorboard_writer import TensorBoardWriter

    settings = {f"env_options.{name}": json.dumps(name) for name in ODD.values()} | {"env_options.huge": "9" * 400}
    writer = TensorBoardWriter(tmp_path, settings)
    writer.write({"environment_steps": 1, **{f"episode/{name}": 1.0 for name in ODD.values()}})
    writer.close()
    (path,) = tmp_path.glob("events.*")
    values = {v.tag: v for event in tf.compat.v1.train.summary_iterator(str(path)) for v in event.summary.value}
    assert {f"episode/{name}" for name in ODD.values()} <= set(values)
    table = values["settings"].tensor.string_val[0].decode()
    assert len(table.splitlines()) == 2 + len(settings)
