"""The figures of benchmarks: spread, ratios, targets, files, and two results side by side."""

import dataclasses
import json
import pathlib
import shutil
import types

import pytest

from callboard.benchmarks import command, harness
from callboard.benchmarks.command import main
from callboard.benchmarks.harness import BENCHMARKS, Case, run_case
from callboard.benchmarks.report import compare, markdown, update_page
from callboard.benchmarks.results import CaseResult, load, new_result, spread

ROOT = pathlib.Path(__file__).parents[2]


def test_quartiles_lie_between_measurements():
    # Sorted 1 2 4 8: a quarter of the way from first to last is at position 0.75, three quarters at 2.25.
    assert spread([8.0, 1.0, 4.0, 2.0]) == (3.0, 1.75, 5.0, 1.0, 8.0)
    assert spread([7.0]) == (7.0, 7.0, 7.0, 7.0, 7.0)


def test_the_ratio_is_that_of_each_repeat():
    # The machine was ten times slower in the second repeat: the median of the ratios does not see it, the ratio of the
    # medians would.
    case = CaseResult("a", "steps/s", ours=[90.0, 8.0, 70.0], limit=[100.0, 10.0, 100.0])
    assert case.ratios == pytest.approx([0.9, 0.8, 0.7])
    assert spread(case.ratios).median == pytest.approx(0.8)


def test_what_is_added_to_a_timestep():
    # 64 steps in 1 ms against 64 in 0.8 ms.
    case = CaseResult("a", "steps/s", ours=[64_000.0], limit=[80_000.0], timestep=64)
    assert case.added_microseconds == pytest.approx([200.0])


@pytest.mark.parametrize(
    "ours, target, higher_is_better, reached",
    [(0.9, 0.85, True, True), (0.8, 0.85, True, False), (1.9, 2.0, False, True), (2.1, 2.0, False, False)],
)
def test_targets(ours, target, higher_is_better, reached):
    assert CaseResult("a", "s", [ours], [1.0], target, higher_is_better).reached is reached


def test_without_a_target_nothing_is_reached():
    assert CaseResult("a", "s", [1.0], [1.0]).reached is None


def result(**ratios):
    """Of a benchmark whose cases have these ratios."""
    cases = [CaseResult(name, "steps/s", list(ours), [1.0] * len(ours)) for name, ours in ratios.items()]
    return dataclasses.replace(new_result("acting", quick=False), cases=cases)


def test_a_result_comes_back_from_its_file(tmp_path):
    before = result(a=(0.5, 0.6), b=(1.0,))
    path = before.save(tmp_path)
    (tmp_path / "other.json").write_text(json.dumps({"rows": []}))
    assert load(path) == load(tmp_path) == [before]
    assert before.machine["cores"] >= 1 and before.versions["tensorflow"]


def test_the_page_shows_the_results_that_are_kept(tmp_path, capsys):
    page = tmp_path / "benchmarks.md"
    shutil.copy(ROOT / "docs" / page.name, page)
    assert main(["plot", "--docs", str(tmp_path)]) == 0, capsys.readouterr().err
    assert page.read_text() == (ROOT / "docs" / page.name).read_text()


def test_only_what_is_beyond_the_spread_is_a_change():
    before = result(same=(0.5, 0.6, 0.7), up=(0.5, 0.6, 0.7), down=(0.5, 0.6, 0.7), gone=(1.0,))
    after = result(same=(0.6, 0.7, 0.8), up=(0.8, 0.8, 0.9), down=(0.2, 0.3, 0.3), new=(1.0,))
    found = {comparison.case: comparison.verdict for comparison in compare([before], [after])}
    assert found == {"same": "", "up": "better", "down": "worse"}


def test_less_is_better_where_it_is_a_cost():
    def costs(*ours):
        one = CaseResult("a", "s", list(ours), [1.0] * len(ours), higher_is_better=False)
        return dataclasses.replace(result(), cases=[one])

    (comparison,) = compare([costs(2.0, 2.1)], [costs(1.0, 1.1)])
    assert comparison.verdict == "better"


def test_the_page_gets_another_table(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- results: written by callboard-bench plot -->\nold\n<!-- end of results -->\nafter\n")
    for ratio in (0.25, 0.75):
        update_page(page, [result(a=(ratio,))], [tmp_path / "picture.png"])
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("-->\nafter\n")
    assert "0.750" in text and "0.250" not in text and "old" not in text
    assert "![picture](picture.png)" in text


def test_a_quick_result_says_so():
    assert "mean nothing" in markdown([dataclasses.replace(result(a=(1.0,)), quick=True)])
    assert "mean nothing" not in markdown([result(a=(1.0,))])


def test_the_page_shows_how_often_cases_were_measured():
    found = [markdown([result(a=(1.0,) * 2, b=(1.0,) * other)]) for other in (1, 2)]
    assert "acting: 1 to 2 repeats" in found[0] and "acting: 2 repeats" in found[1]
    assert "acting: 1 repeat," in markdown([result(a=(1.0,))])


class InThisProcess:
    """In place of `SideProcess`: a side that notes when it is measured."""

    def __init__(self, make, policy):
        self._side = make()
        self.close = lambda: None

    def measure(self):
        return self._side.measure()


@pytest.fixture
def measured(monkeypatch):
    """What was measured, in turn."""
    monkeypatch.setattr(harness, "SideProcess", InThisProcess)
    return []


def side(name, figures, measured):
    class OneSide:
        def measure(self):
            measured.append(name)
            return figures[measured.count(name) - 1]

    return OneSide


def test_sides_are_measured_in_turn_and_change_places(measured):
    case = Case("a", "s", side("ours", [1.0, 2.0, 3.0], measured), side("limit", [2.0, 2.0, 4.0], measured))
    lines = []
    found = run_case(case, 3, lines.append)
    assert measured == ["ours", "limit", "limit", "ours", "ours", "limit"]
    assert found.ratios == [0.5, 1.0, 0.75]
    assert lines[-1] == "a: ratio 0.750, quartiles 0.625 to 0.875"


def test_a_limit_may_be_known(measured):
    found = run_case(Case("a", "s", side("ours", [1.0, 3.0], measured), 2.0), 2, lambda line: None)
    assert found.ratios == [0.5, 1.5]


def test_two_files_are_compared_on_the_screen(tmp_path, capsys):
    before = result(a=(0.5, 0.5)).save(tmp_path / "before")
    result(a=(0.9, 0.9)).save(tmp_path / "after")
    assert main(["compare", str(before), str(tmp_path / "after")]) == 0
    line = capsys.readouterr().out.splitlines()[-1].split()
    assert line[:2] == ["acting", "a"] and line[-1] == "better"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["run", "acing"], "unknown benchmark 'acing'; did you mean 'acting'?"),
        (["run", "acting", "--repeats", "0"], "--repeats must be from 1 to 20, not 0"),
        (["compare", "nowhere", "nowhere"], "there is no nowhere"),
        (["compare", __file__, __file__], "cannot be read as results"),
    ],
)
def test_mistakes_are_named(arguments, message, capsys):
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_a_name_that_no_case_has_is_refused(monkeypatch, capsys):
    module = types.SimpleNamespace(cases=lambda quick: [Case("small", "s", limit=1.0, ours=pytest.fail)])
    monkeypatch.setattr(harness, "_module", lambda name: module)
    monkeypatch.setattr(command, "start_forkserver", lambda: None)
    assert main(["run", "acting", "--only", "nosuch"]) == 2
    assert "no case that is there has 'nosuch' in its name" in capsys.readouterr().err


def test_the_list_names_all(capsys):
    assert main(["list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(BENCHMARKS)


def test_a_path_that_is_too_long_is_one_line(capsys):
    assert main(["compare", "x" * 300, "y"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("callboard-bench: the path xxx") and error.count("\n") == 1
