"""Names that messages suggest, and errors as lines."""

import os
import pickle
import signal
import sys
import typing
from collections.abc import Iterable

import pytest

from callboard.agents.variables.finite_checks import NotFiniteError
from callboard.environments.workers.worker_process import WorkerEnded, WorkerExit, _error_type
from callboard.errors import (
    CallboardError,
    ControlFlow,
    MissingPackage,
    UnknownAttribute,
    UnknownSetting,
    anything_raised,
    check_text,
    exits_refused,
    limits_text,
    nearest,
    one_line,
    printable,
    printable_lines,
    rounded,
    similar_setting,
    suggestion,
    traceback_text,
    type_text,
    unknown,
    with_deviation,
)
from callboard.launch.experiments.settings import setting_fields
from callboard.launch.launchers.run_outcome import OutputClosed
from callboard.launch.nodes.inference.episode_server import RefusedRequest
from callboard.launch.run_directory.remote_storage import StorageError
from callboard.policy_client import EpisodeLost, ServerError

TORSOS = ("auto", "mlp", "Nature")


@pytest.mark.parametrize("name, expected", [("ml", "mlp"), ("nature", "Nature"), ("MLP", "mlp"), ("x", None)])
def test_the_most_similar_name_is_found_ignoring_case(name, expected):
    assert nearest(name, TORSOS) == expected


def test_without_a_similar_name_the_known_ones_are_listed():
    assert str(unknown("torso", "ml", TORSOS)) == "unknown torso 'ml'; did you mean 'mlp'?"
    assert str(unknown("torso", "x", TORSOS)) == "unknown torso 'x'; choose from auto, mlp, Nature"
    assert str(unknown("key", 5, TORSOS, "see --help")) == "unknown key 5; see --help"
    assert suggestion("x", []) == "choose from none"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("\nno\nnumber"), "ValueError: no"),
        (KeyError("a: "), "KeyError: 'a: '"),
        (AssertionError(), "AssertionError"),
        (CallboardError("set it to 1"), "set it to 1"),
    ],
)
def test_an_error_is_one_line(error, line):
    assert one_line(error) == line


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no message")


class UnprintableRefusal(Unprintable, CallboardError):
    pass


class NoText(Exception):
    def __str__(self):
        return 5


class LeavesAsText(Exception):
    def __str__(self):
        sys.exit(3)


NOT_SHOWN = "its message cannot be shown, since its __str__ fails"


@pytest.mark.parametrize("kind", [Unprintable, NoText, LeavesAsText])
def test_an_error_without_a_message_is_one_line(kind):
    assert one_line(kind()) == f"{kind.__name__}: {NOT_SHOWN}"
    assert limits_text(kind()) == "" and kind.__name__ in traceback_text(kind())
    assert one_line(UnprintableRefusal()) == NOT_SHOWN


def test_a_huge_error_is_a_short_line():
    huge = ValueError("x" * 10_000_000)
    assert len(one_line(huge)) < 600 and len(traceback_text(huge)) < 60_000
    assert one_line(CallboardError("two\nlines")) == "two lines"


@pytest.mark.parametrize("error", [ValueError(), SystemExit(3), GeneratorExit(), BaseException()])
def test_code_may_raise_anything(error):
    with pytest.raises(ZeroDivisionError):
        try:
            raise error
        except anything_raised():
            1 / 0  # noqa: B018


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ControlFlow()])
def test_an_interrupt_is_no_error(error):
    with pytest.raises(type(error)):
        try:
            raise error
        except anything_raised():
            1 / 0  # noqa: B018


def test_code_that_leaves_is_refused():
    with pytest.raises(CallboardError, match=r"^test_errors.py, line \d+, in .*, raises SystemExit: 3; let it raise"):
        with exits_refused():
            sys.exit(3)
    for error in (ValueError(), KeyboardInterrupt()):
        with pytest.raises(type(error)), exits_refused():
            raise error


def test_a_signal_handler_may_leave():
    before = signal.signal(signal.SIGUSR2, lambda *_: sys.exit(7))
    try:
        with pytest.raises(SystemExit), exits_refused():
            os.kill(os.getpid(), signal.SIGUSR2)
    finally:
        signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize("agent", ["ppo", "sac", "apex"])
def test_a_misspelled_setting_is_recognized(agent):
    known = {name: name for name in setting_fields(agent)}
    tried, wrong = 0, []
    for name in known:
        for written in (name[:-2] + name[-1], name[:-1], name[:-3] + name[-2] + name[-3] + name[-1]):
            if len(name.rpartition(".")[2]) > 4 and written not in known:
                tried += 1
                if repr(name) not in (similar_setting(written, known) or ""):
                    wrong.append(written)
    assert tried > 200 and not wrong


@pytest.mark.parametrize(
    ("written", "known"),
    [("num_workers", "env_wrappers"), ("env", "render"), ("record_episodes", "evaluation_episodes")],
)
def test_names_that_share_words_alone_are_not_similar(written, known):
    assert nearest(written, [known]) is None


def test_a_text_with_control_codes_is_shown_in_one_line():
    assert printable("a\x1b[2J\nb\x9b\x07ü漢") == "a\\x1b[2J\\nb\\x9b\\x07ü漢"
    assert printable_lines("a\x1b\nb\r") == "a\\x1b\nb\\r"


@pytest.mark.parametrize("name", ["größe", "a b", "quo'te\"", "../up", "", "x" * 300, "esc\x1b[2J\n", "null\x00"])
def test_a_name_that_is_text_is_accepted_and_printed_in_one_line(name):
    check_text(name, "the team has the agent")
    assert printable(name).isprintable()


def test_a_name_that_is_no_text_is_refused_in_one_line():
    with pytest.raises(CallboardError, match=r"^the team has the agent 'a\\ud800', which is no text") as caught:
        check_text("a\ud800", "the team has the agent")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(("value", "kind"), [(3, "an int"), ("x", "a str"), ({}, "a dict"), (OSError(), "an OSError")])
def test_a_type_is_named_with_its_article(value, kind):
    assert type_text(value) == kind


def test_a_number_is_shown_in_few_digits():
    shown = [rounded(number) for number in (0, -12.34, 1234567.89, -1e308, float("inf"), float("nan"))]
    assert shown == ["0.0", "-12.3", "1234567.9", "-1e+308", "inf", "nan"]


def test_a_small_score_is_shown_in_three_digits():
    shown = [rounded(number) for number in (0.9564, -0.01234, 1, -3, 9.999, 9.4071)]
    assert shown == ["0.956", "-0.0123", "1.0", "-3.0", "10.0", "9.41"]


def test_a_deviation_has_as_many_decimals_as_its_mean():
    pairs = [(12.62, 5.27), (0.9564, 0.0179), (500.0, 0.0), (0.0, 0.05), (-0.2, 0.4321), (1e300, 5.0)]
    shown = [with_deviation(*pair) for pair in pairs]
    assert shown[:3] == ["12.6 ± 5.3", "0.956 ± 0.018", "500.0 ± 0.0"]
    assert shown[3:] == ["0.0 ± 0.05", "-0.2 ± 0.4", "1e+300 ± 5.0"]


@pytest.mark.parametrize(
    "kind",
    [
        CallboardError,
        MissingPackage,
        UnknownSetting,
        NotFiniteError,
        StorageError,
        WorkerExit,
        WorkerEnded,
        OutputClosed,
        RefusedRequest,
        EpisodeLost,
        ServerError,
        UnknownAttribute,
        _error_type(("FileNotFoundError", "OSError")),
        _error_type(("OwnError", "ValueError")),
    ],
)
def test_an_error_arrives_in_another_process(kind):
    made = {int: 3, bool: True, OSError: OSError(32, "Broken pipe"), Iterable[str]: iter(["discount", "unroll"])}
    error = kind(*(made.get(hint, f"a {name}") for name, hint in typing.get_type_hints(kind.__init__).items()))
    found = pickle.loads(pickle.dumps(error))
    assert (type(found), str(found), vars(found)) == (kind, str(error), vars(error))
    assert issubclass(kind, OSError) == isinstance(found, OSError)
