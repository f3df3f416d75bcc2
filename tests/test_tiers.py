"""Which tests a tier has: all of them within its days, each value of two parameters, each file in one shard."""

import collections
import os
import pathlib
import re
import subprocess
import sys

import pytest
from tiers import DAYS, SCORES, Case, cases_of, counts_text, day_of, further_cases_of, is_in_shard

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("count", [1, 2, 13, 14, 15, 28, 29, 121])
@pytest.mark.parametrize("first_day", [0, 739_586])
def test_each_case_runs_once_in_a_fortnight_and_each_day_has_few(count, first_day):
    cases = [Case("test_a.py::test_one")] * count
    days = [cases_of(cases, first_day + day) for day in range(DAYS)]
    assert sorted(position for day in days for position in day) == list(range(count))
    assert {len(day) for day in days} <= {count // DAYS, -(-count // DAYS)}


@pytest.mark.parametrize("count", [1, 2, 13, 14, 15, 28, 29, 121])
@pytest.mark.parametrize("first_day", [0, 739_586])
def test_a_daily_function_has_a_case_each_day_and_all_in_a_fortnight(count, first_day):
    cases = [Case("test_a.py::test_other", is_daily=True)] + [Case("test_a.py::test_one", is_daily=True)] * count
    days = [cases_of(cases, first_day + day) for day in range(DAYS)]
    assert set().union(*days) == set(range(count + 1))
    assert {len(day) for day in days} == {1 + -(-count // DAYS)}


@pytest.mark.parametrize("is_daily", [False, True])
def test_functions_of_a_file_have_the_same_cases_of_what_they_share(is_daily):
    cases = [Case(f"test_a.py::test_{name}", is_daily=is_daily) for name in "ab" for _ in range(20)]
    for day in range(DAYS):
        chosen = sorted(cases_of(cases, day))
        half = len(chosen) // 2
        assert half and [position - 20 for position in chosen[half:]] == chosen[:half]


@pytest.mark.parametrize("agents, launchers", [(22, 5), (3, 5), (4, 2), (2, 2)])
def test_a_covering_row_has_each_agent_and_each_launcher_twice_and_changes_with_the_day(agents, launchers):
    pairs = [(agent, launcher) for agent in range(agents) for launcher in range(launchers)]
    # A third parameter, of which one value is enough.
    cases = [
        Case("test_a.py::test_one", {"agent": str(agent), "launcher": str(launcher)}, ("agent", "launcher"))
        for agent, launcher in pairs
        for _ in range(2)
    ]
    seen = set()
    for day in range(DAYS):
        chosen = [cases[position].values for position in cases_of(cases, day)]
        assert {one["agent"] for one in chosen} == set(map(str, range(agents)))
        counts = collections.Counter(one["launcher"] for one in chosen)
        assert set(counts) == set(map(str, range(launchers))) and min(counts.values()) >= 2
        assert len(chosen) <= max(agents, 2 * launchers)
        seen |= {(one["agent"], one["launcher"]) for one in chosen}
    assert seen == {(str(agent), str(launcher)) for agent, launcher in pairs}


def test_pairs_are_known_where_a_function_has_a_fixture_with_parameters(run_tests, tmp_path):
    (tmp_path / "tests" / "test_pairs.py").write_text(PAIRS)
    code, output = run_tests("--most=2026-12-01", "--collect-only", "-m", "slow", "tests/test_pairs.py")
    assert code == 0, output
    assert len(re.findall(r"test_pairs.py::", output)) == 6, output


@pytest.mark.parametrize("counts", [[1], [3, 3, 3], [39, 6, 5, 4, 4, *[3] * 5, 2, 2, *[1] * 5]])
@pytest.mark.parametrize("first_day", [0, 739_586, 739_600])
def test_a_day_has_two_tests_that_train_to_a_score_and_a_fortnight_each_function(counts, first_day):
    cases = [
        Case(f"test_a.py::test_{number}", is_score=True) for number, count in enumerate(counts) for _ in range(count)
    ]
    days = [cases_of(cases, first_day + day) for day in range(130)]
    assert {len(day) for day in days} <= {1, SCORES}
    fortnight = set().union(*days[:DAYS])
    assert {cases[position].function for position in fortnight} == {case.function for case in cases}
    assert set().union(*days) == set(range(len(cases)))


def test_a_day_has_a_case_of_each_function_after_those_that_are_due():
    cases = [Case("test_a.py::test_one")] + [Case("test_a.py::test_two")] * 3 + [Case("test_b.py::test", is_score=True)]
    seen = set()
    for day in range(3 * DAYS):
        due = cases_of(cases, day)
        further = further_cases_of(cases, due, day)
        assert not due & further
        functions = [cases[position].function for position in due | further]
        assert sorted(functions) == ["test_a.py::test_one", "test_a.py::test_two", "test_b.py::test"]
        seen |= further
    assert seen == {0, 1, 2, 3}
    text = counts_text(cases, 0)
    assert text.endswith("5 cases are due within 14 days, of 3 functions, and all that train to a score within 1 days")


@pytest.mark.parametrize("count", [1, 3, 8])
def test_every_file_is_in_one_shard(count):
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    for file in files:
        assert [is_in_shard(file, f"{number}/{count}") for number in range(1, count + 1)].count(True) == 1
    # And no shard is empty.
    assert all(any(is_in_shard(file, f"{number}/{count}") for file in files) for number in range(1, count + 1))


@pytest.mark.parametrize("shard", ["0/8", "9/8", "3", "3/", "a/b", "-1/8"])
def test_what_is_no_shard_is_refused(shard):
    with pytest.raises(pytest.UsageError, match="a shard is one such as 3/8"):
        is_in_shard("test_a.py", shard)


def test_make_takes_the_day_the_budget_and_the_shard_from_its_environment():
    given = {**os.environ, "DATE": "2026-12-01", "BUDGET": "5", "SHARD": "3/8"}
    command = ["make", "--dry-run", "--assume-old=install", "test-most", "test-slow"]
    done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True)
    for option in ("--most=2026-12-01", "--budget=5", "--shard=3/8"):
        assert option in done.stdout.split(), done


TESTS = """
import pathlib
import pytest

HERE = pathlib.Path(__file__).parent

@pytest.mark.slow("daily")
@pytest.mark.parametrize("name", ["x y", "z"])
def test_of_chance(name):
    before = HERE / name
    if not before.exists():
        before.touch()
        raise AssertionError

def test_sound():
    pass

def test_never_passes():
    assert not (HERE / "broken").exists()
"""


FURTHER = """
import pytest

class Unprintable:
    def __str__(self):
        raise ValueError

@pytest.mark.slow
@pytest.mark.parametrize("number", range(DAYS))
@pytest.mark.parametrize("value", [Unprintable()], ids=["none"])
def test_due(number, value):
    pass

@pytest.mark.slow
def test_once_in_a_fortnight():
    pass
"""


PAIRS = """
import pytest

@pytest.fixture(params=range(6))
def agent(request):
    return request.param

@pytest.mark.slow
@pytest.mark.covering("agent", "launcher")
@pytest.mark.parametrize("launcher", ["threads", "processes"])
def test_every_agent_runs(agent, launcher):
    pass
"""


@pytest.fixture
def run_tests(tmp_path):
    """Runs pytest with the plugin on the tests above, and gives its exit code and output."""
    # The plugin is found as in this repository: by the folder of the tests, which no argument names.
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_some.py").write_text(TESTS)
    (tmp_path / "tests" / "conftest.py").write_text('pytest_plugins = ["tiers"]\n')
    settings = f"[pytest]\npythonpath = {ROOT / 'tests'}\ntestpaths = tests\nmarkers = slow\n"
    (tmp_path / "pytest.ini").write_text(settings)

    def run(*options):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *options]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    return run


def listed(output, title):
    """The tests under a title."""
    _, _, rest = output.partition(title)
    names = []
    for line in rest.splitlines()[1:]:
        if not line.startswith("tests/test_some.py"):
            break
        names.append(line)
    return names


UNSTABLE = ["tests/test_some.py::test_of_chance[x y]", "tests/test_some.py::test_of_chance[z]"]


@pytest.mark.slow("daily")
@pytest.mark.parametrize(
    "workers", [(), pytest.param(("-n", "1", "--dist", "loadfile"), marks=pytest.mark.slow)], ids=["alone", "workers"]
)
def test_what_passes_when_it_is_repeated_is_listed_as_unstable_and_fails_nothing(run_tests, workers):
    code, output = run_tests("--repeat-failed", *workers)
    assert code == 0, output
    assert listed(output, "unstable: ") == UNSTABLE, output


@pytest.mark.slow
def test_what_fails_again_fails(run_tests, tmp_path):
    (tmp_path / "tests" / "broken").touch()
    code, output = run_tests("--repeat-failed")
    assert code == 1 and listed(output, "unstable: ") == UNSTABLE, output


@pytest.mark.slow
def test_no_test_begins_after_the_budget_and_those_left_out_are_listed(run_tests):
    code, output = run_tests("--budget=0")
    assert code == 0 and len(listed(output, "not run: ")) == 4, output


def test_a_day_has_one_case_of_each_daily_test_and_no_fast_one(run_tests):
    code, output = run_tests("--most=2026-12-01", "--collect-only")
    assert code == 0, output
    (chosen,) = re.findall(r"test_some.py::(.*)", output)
    assert chosen in ("test_of_chance[x y]", "test_of_chance[z]")


def test_what_is_not_due_comes_last_and_no_parameter_need_be_a_text(run_tests, tmp_path):
    (tmp_path / "tests" / "test_further.py").write_text(FURTHER.replace("DAYS", str(DAYS)))
    (tmp_path / "tests" / "test_some.py").unlink()
    code, output = run_tests("--most=2026-12-01", "--collect-only", "tests")
    assert code == 0, output
    assert re.findall(r"test_further.py::(\w+)", output) == ["test_due", "test_once_in_a_fortnight"], output
    assert "1 of 15 cases are due, of 1 of 2 functions, and 1 of other functions follow while there is time" in output
    code, output = run_tests("--most=2026-12-01", "--budget=0", "tests")
    assert "not run: no time is left for cases that are due on other days" in output


@pytest.mark.parametrize("date", ["tomorrow", "2026-13-01", ""])
def test_what_is_no_date_is_refused(date):
    with pytest.raises(pytest.UsageError, match=f"a date is one such as 2026-12-01, not '{date}'"):
        day_of(date)
