"""Infos that are recorded: in every interface and with every way to reset, and names that never appear."""

import numpy as np
import pytest

from callboard import environments
from callboard.environments.batches.infos import Infos
from callboard.environments.recorded import EpisodeFiles, EpisodeRecorder, RecordedEnvironment
from callboard.environments.recorded.chosen_infos import ChosenInfos, parse_record_infos
from callboard.errors import CallboardError

minari = pytest.importorskip("minari")

FACTORIES = ("Counting", "DmCounting", "next_step", "same_step", "set_next_step", "set_same_step")
NAMES = ("limit", "time", "parts.half", "second")
NAN = np.nan


def play(environment, actions):
    environment.reset()
    for action in actions:
        environment.step(np.array(action, np.int32))
    environment.close()


@pytest.mark.parametrize("factory", FACTORIES)
def test_minari_reads_the_infos_of_resets_and_steps(tmp_path, factory):
    environment = environments.make(f"informed_environments:{factory}", 2, range(2))
    environment.keep_infos()
    files = EpisodeFiles(tmp_path / "informed-v0", environment.spec, {}, 1e9)
    recorder = EpisodeRecorder(environment.spec, [0, 1], files.append, infos=ChosenInfos(NAMES, "x", print))
    # The second environment terminates in its second step, the first is cut off in its third.
    play(RecordedEnvironment(environment, recorder), [[0, 0], [0, 2], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0]])
    found = list(minari.MinariDataset(str(tmp_path / "informed-v0" / "data")))
    assert len(found) >= 4
    for episode in found:
        steps = len(episode)
        assert steps == (2 if episode.terminations[-1] else 3)
        wanted = {
            "limit": [3, NAN, NAN, NAN],
            "time": [NAN, 1, 2, 3],
            "parts.half": [NAN, 0.5, 1, 1.5],
            "second": [NAN, NAN, 1, NAN],
        }
        assert set(episode.infos) == set(wanted)
        for name, values in wanted.items():
            np.testing.assert_array_equal(episode.infos[name], values[: steps + 1], err_msg=name)


def test_texts_and_large_arrays_are_read_by_minari(tmp_path):
    environment = environments.make("informed_environments:Counting", 1, [0])
    files = EpisodeFiles(tmp_path / "informed-v0", environment.spec, {}, 1e9)
    recorder = EpisodeRecorder(environment.spec, [0], files.append, infos=ChosenInfos(["room/name", "map"], "x", print))
    rooms = ["hall", "küche", "attic"]
    maps = [np.full((80, 80), room, np.uint8) for room in range(3)]
    infos = [{"room/name": room, "map": one} for room, one in zip(rooms, maps, strict=True)]
    recorder.begin(environment.reset(), Infos([{}], infos[:1]))
    for info in infos[1:]:
        timestep = environment.step(np.array([2 * (info is infos[-1])], np.int32))
        recorder.step(np.zeros(1, np.int32), timestep, Infos([info], [{}]))
    recorder.close()
    (episode,) = minari.MinariDataset(str(tmp_path / "informed-v0" / "data"))
    assert [text.decode() for text in episode.infos["room.name"]] == rooms
    np.testing.assert_array_equal(episode.infos["map"], maps)
    assert episode.infos["map"].dtype == np.uint8


def test_what_cannot_be_recorded_ends_the_thread_that_steps():
    environment = environments.make("informed_environments:Counting", 2, range(2))
    environment.keep_infos()
    recorder = EpisodeRecorder(
        environment.spec, [0, 1], lambda new: True, infos=ChosenInfos(["parts"], "Counting", print)
    )
    with pytest.raises(CallboardError, match="'parts' of Counting is of type dict.*such as parts.half"):
        play(RecordedEnvironment(environment, recorder), [[0, 0]] * 5)


def test_arrays_that_the_environment_changes_later_are_copied():
    buffer, row = np.zeros(2), [1, 2]
    chosen = ChosenInfos(["a", "b"], "x", print)
    taken = chosen.step(Infos([{"a": buffer, "b": row}], [{}]), np.array([False]))
    buffer += 1
    row[0] = 9
    assert taken.followed[0][0].tolist() == [0, 0] and taken.followed[1] == [[1, 2]] and taken.begun == []


def test_names_that_never_appear_are_reported_once():
    lines = []
    chosen = ChosenInfos(["distance", "sucess"], "x", lines.append)
    infos = Infos([{"distance": 1.0, "success": True}] * 2, [{}, {}])
    chosen.begin(Infos([{}, {}], [{}, {}]))
    for _ in range(20):
        chosen.step(infos, np.array([True, False]))
    chosen.report_missing()
    assert lines == ["no info so far has the recorded info 'sucess'; did you mean 'success'?"]


def test_names_that_have_not_appeared_in_a_few_steps_are_reported_at_the_end():
    lines = []
    chosen = ChosenInfos(["success"], "x", lines.append)
    chosen.begin(Infos([{}], [{}]))
    chosen.report_missing()
    assert lines == []
    chosen.step(Infos([{}], [{}]), np.array([False]))
    chosen.report_missing()
    assert lines == ["no info so far has the recorded info 'success'; it has none"]


def test_names_are_read_from_lists_and_text():
    assert parse_record_infos(()) == parse_record_infos("") == ()
    assert parse_record_infos("a, b.c") == parse_record_infos(["a", "b.c"]) == ("a", "b.c")
    for texts, says in (
        (["a", ""], "'' names no key"),
        ("a,.b", "'.b' names no key"),
        ("a,a", "'a' is named twice"),
        (["a.b", "a/b"], "'a.b' is named twice, where a slash"),
        ("/", "no file .* the name '/'"),
        ("a\0b", "no file .* the name"),
        ("\ud800", "no file .* the name"),
    ):
        with pytest.raises(CallboardError, match=f"record_infos: {says}"):
            parse_record_infos(texts)
