"""Three tiers of tests: the fast ones, a case of the slow ones every day, and everything in shards.

    pytest --most=2026-12-01    of the slow tests, the cases of that day
    pytest --shard=3/8          the third of eight parts, which are whole files
    pytest --budget=45          begins no test after 45 minutes, and lists those that were left out
    pytest --repeat-failed      runs each test that fails once more, alone; if all pass then, they are called unstable
    pytest --record-seconds     notes in slow_seconds.json how long each slow function takes

The equals sign is needed: until this module is found by the folder of the tests, its options have no values.

A day has so many cases of each slow function that 14 days have each case once, and of those marked `slow("daily")`,
which take seconds, at least one. Of two parameters that are marked as `covering`, such as agents and launchers, a day
has each value of the first one, and each of the second one twice. Of all tests that are marked as `score`, a day has
two, such that 14 days have each function. These are due. One case of each other function follows, until no time is
left of the budget: files whose functions take the least time come first, by slow_seconds.json.
"""

import collections
import datetime
import json
import math
import pathlib
import subprocess
import sys
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import pytest

T = TypeVar("T")
COUNTS, FURTHER = pytest.StashKey[str](), pytest.StashKey[bool]()
DAYS = 14
SCORES = 2
MOST_REPEATS = 20
"""If more tests fail, it is no accident, and none is repeated."""
REPEAT_MINUTES = 15
"""After these no further test is repeated."""
NO_TIME = "no time is left of the budget"
NO_TIME_FOR_MORE = "no time is left for cases that are due on other days"
SECONDS = pathlib.Path(__file__).parent / "slow_seconds.json"
UNKNOWN_SECONDS = 5.0
"""Of a function that was never measured; of most slow ones a case takes less."""


class Case(NamedTuple):
    """What a selection depends on."""

    function: str
    """Node id without parameters."""
    values: Mapping[str, str] = {}
    """The name of the value of each parameter that is covering."""
    covering: tuple[str, ...] = ()
    """Two parameters all of whose values are enough, without all pairs."""
    is_score: bool = False
    is_daily: bool = False


def cases_of(cases: Sequence[Case], day: int) -> set[int]:
    """The positions of the cases that run on a day."""
    functions = _by_function(cases)
    scores: list[list[int]] = []
    chosen: list[int] = []
    for function, positions in functions.items():
        # By file, so that its functions have the same parameters of what they share.
        shifted = day + zlib.crc32(function.partition("::")[0].encode())
        covering = cases[positions[0]].covering
        if cases[positions[0]].is_score:
            scores.append(positions)
        elif covering:
            pairs = collections.defaultdict(list)
            for position in positions:
                pairs[tuple(cases[position].values[name] for name in covering)].append(position)
            chosen += [_in_turn(pairs[pair], shifted, 1)[0] for pair in _covering_pairs(list(pairs), day)]
        elif cases[positions[0]].is_daily:
            chosen += _in_turn(positions, shifted, math.ceil(len(positions) / DAYS))
        else:
            chosen += positions[-shifted % DAYS :: DAYS]
    return {*chosen, *(_score_of(scores, SCORES * day + number) for number in range(SCORES) if scores)}


def further_cases_of(cases: Sequence[Case], due: set[int], day: int) -> set[int]:
    """The positions of one case of each function that has none among those that are due, except of scores."""
    have = {cases[position].function for position in due}
    others = [positions for function, positions in _by_function(cases).items() if function not in have]
    return {_in_turn(positions, day, 1)[0] for positions in others if not cases[positions[0]].is_score}


def counts_text(cases: Sequence[Case], day: int) -> str:
    """Says how many of the cases and functions a day has, and the days after it."""
    days = [cases_of(cases, day + number) for number in range(DAYS)]
    fortnight = set().union(*days)
    further = further_cases_of(cases, days[0], day)
    of_score = [each for each in _by_function(cases).values() if cases[each[0]].is_score]
    missing, needed = {position for each in of_score for position in each}, 0
    while missing:
        missing -= {_score_of(of_score, SCORES * (day + needed) + number) for number in range(SCORES)}
        needed += 1
    functions = {case.function for case in cases}
    return (
        f"{len(days[0])} of {len(cases)} cases are due, of {len(_names(cases, days[0]))} of {len(functions)} functions,"
        f" and {len(further)} of other functions follow while there is time; {len(fortnight)} cases are due within "
        f"{DAYS} days, of {len(_names(cases, fortnight))} functions, and all that train to a score within {needed} days"
    )


def _names(cases: Sequence[Case], positions: set[int]) -> set[str]:
    return {cases[position].function for position in positions}


def _by_function(cases: Sequence[Case]) -> Mapping[str, list[int]]:
    functions = collections.defaultdict(list)
    for position, case in enumerate(cases):
        functions[case.function].append(position)
    return functions


def _score_of(functions: Sequence[Sequence[int]], number: int) -> int:
    """The case with a number in the order of those that train to a score.

    Two of three are of the functions in turn, so that 14 days have each; the third is of all cases in turn.
    """
    if number % 3 == 0:
        return _in_turn([position for positions in functions for position in positions], number // 3, 1)[0]
    turn, function = divmod(number - number // 3 - 1, len(functions))
    return _in_turn(functions[function], turn, 1)[0]


def _in_turn(positions: Sequence[T], day: int, count: int) -> list[T]:
    """So many positions each day, beginning after those of the day before."""
    return [positions[(day * count + number) % len(positions)] for number in range(min(count, len(positions)))]


def _covering_pairs(pairs: Sequence[tuple[str, ...]], day: int) -> set[tuple[str, ...]]:
    """Pairs that have each first value, and each second one twice; the day decides which go together."""
    chosen: set[tuple[str, ...]] = set()
    for side, least in ((0, 1), (1, 2)):
        for number, value in enumerate(sorted({pair[side] for pair in pairs})):
            has = [pair for pair in pairs if pair[side] == value]
            missing = least - len(chosen & {*has})
            if missing > 0:
                chosen.update(_in_turn([pair for pair in sorted(has) if pair not in chosen], day + number, missing))
    return chosen


def is_in_shard(file: str, shard: str) -> bool:
    """Whether a file's tests are in a shard such as "3/8"."""
    number, _, count = shard.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise pytest.UsageError(f"a shard is one such as 3/8, not {shard!r}")
    return zlib.crc32(file.encode()) % int(count) == int(number) - 1


def pytest_addoption(parser):
    group = parser.getgroup("tiers")
    group.addoption("--most", metavar="DATE", help="of the slow tests the cases of a day, such as 2026-12-01")
    group.addoption("--shard", metavar="K/N", help="the tests of each N-th file alone")
    group.addoption("--budget", metavar="MINUTES", type=float, help="no test begins later, and this is no failure")
    group.addoption("--repeat-failed", action="store_true", help="runs what fails once more, alone")
    group.addoption("--record-seconds", action="store_true", help="notes how long slow functions take")


def pytest_configure(config):
    for line in ("score: trains to a score", "covering(one, other): all values of two parameters are enough"):
        config.addinivalue_line("markers", line)
    config.pluginmanager.register(_Repeats(config), "repeats of failed tests")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        if "launcher_named" in item.fixturenames:
            # Launchpad takes the signal of alarms for itself.
            item.add_marker(pytest.mark.timeout(method="thread"))
    date, shard = config.getoption("--most"), config.getoption("--shard")
    kept = list(items)
    if shard:
        kept = [item for item in kept if is_in_shard(_file_of(item), shard)]
    if date is not None:
        slow = [item for item in kept if item.get_closest_marker("slow")]
        kept = _of_day(config, slow, day_of(date))
    if len(kept) < len(items):
        same = set(map(id, kept))
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in same])
        items[:] = kept


def _of_day(config, items, day):
    """The tests that are due on a day, and one of each other function after all of them."""
    cases = [_case_of(item) for item in items]
    due = cases_of(cases, day)
    further = further_cases_of(cases, due, day)
    config.stash[COUNTS] = counts_text(cases, day)

    # Files begin elsewhere each day, so that the budget does not always leave out the same ones.
    def turn(file: str) -> int:
        return zlib.crc32(f"{day} {file}".encode())

    seconds = json.loads(SECONDS.read_text())
    of_files = collections.defaultdict(list)
    for position in further:
        items[position].stash[FURTHER] = True
        of_files[_file_of(items[position])].append(seconds.get(cases[position].function, UNKNOWN_SECONDS))
    mean = {file: sum(each) / len(each) for file, each in of_files.items()}
    return [
        *(items[position] for position in sorted(due, key=lambda one: (turn(_file_of(items[one])), one))),
        *(
            items[position]
            for position in sorted(
                further, key=lambda one: (mean[_file_of(items[one])], turn(_file_of(items[one])), one)
            )
        ),
    ]


def pytest_report_collectionfinish(config):
    return config.stash.get(COUNTS, [])


def day_of(date: str) -> int:
    """The number of a day."""
    try:
        return datetime.date.fromisoformat(date).toordinal()
    except ValueError:
        raise pytest.UsageError(f"a date is one such as 2026-12-01, not {date!r}") from None


def _file_of(item) -> str:
    return item.nodeid.partition("::")[0]


def _case_of(item) -> Case:
    covering = item.get_closest_marker("covering")
    # Not pytest's own indices: they count the cases of a function that also has a fixture with parameters.
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    names = covering.args if covering else ()
    values = {name: str(getattr(parameters[name], "name", parameters[name])) for name in names}
    is_score = item.get_closest_marker("score") is not None
    is_daily = any("daily" in marker.args for marker in item.iter_markers("slow"))
    return Case(item.nodeid.partition("[")[0], values, names, is_score, is_daily)


class _Repeats:
    """Ends a session in time, and repeats what failed in it."""

    def __init__(self, config):
        self._config, self._begun = config, time.monotonic()
        self._failed, self._unstable = [], []
        self._left_out = {NO_TIME: [], NO_TIME_FOR_MORE: []}
        self._seconds = collections.defaultdict(list)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        minutes = self._config.getoption("--budget")
        if minutes is not None and time.monotonic() - self._begun > 60 * minutes:
            pytest.skip(NO_TIME_FOR_MORE if item.stash.get(FURTHER, False) else NO_TIME)

    def pytest_runtest_logreport(self, report):
        if report.failed and report.nodeid not in self._failed:
            self._failed.append(report.nodeid)
        for reason, names in self._left_out.items():
            if report.skipped and reason in str(report.longrepr):
                names.append(report.nodeid)
        if report.when == "call" and report.passed and "slow" in report.keywords:
            self._seconds[report.nodeid.partition("[")[0]].append(report.duration)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        is_worker = hasattr(self._config, "workerinput")
        if self._config.getoption("--record-seconds") and not is_worker:
            known = json.loads(SECONDS.read_text())
            known |= {name: round(sum(each) / len(each), 1) for name, each in self._seconds.items()}
            SECONDS.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n")
        is_wanted = self._config.getoption("--repeat-failed") and session.exitstatus == pytest.ExitCode.TESTS_FAILED
        if is_worker or not is_wanted or not 0 < len(self._failed) <= MOST_REPEATS:
            return
        begun = time.monotonic()
        for name in self._failed:
            left = begun + 60 * REPEAT_MINUTES - time.monotonic()
            if left > 0 and self._passes(name, left):
                self._unstable.append(name)
        if len(self._unstable) == len(self._failed):
            session.exitstatus = pytest.ExitCode.OK

    def _passes(self, name: str, seconds: float) -> bool:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", name]
        try:
            done = subprocess.run(command, cwd=self._config.rootpath, stdout=subprocess.DEVNULL, timeout=seconds)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def pytest_terminal_summary(self, terminalreporter):
        for title, names in (
            ("unstable: failed, and passed when repeated alone", self._unstable),
            *((f"not run: {reason}", names) for reason, names in self._left_out.items()),
        ):
            if names:
                terminalreporter.section(title)
                for name in names:
                    terminalreporter.line(name)
