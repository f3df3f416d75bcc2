"""Items that arrive twice, as from a writer that lost its connection and sends again what was not confirmed."""

import contextlib
import socket
import threading

import numpy as np
import pytest
import reverb
import timestep_streams
import tree
from reading import read_batches

from callboard.replay import BatchReader, Elements, ReplayHandle, SequenceWriter, queue_dataset, sequence_signature
from callboard.replay.packing import item_id
from callboard.runtime.deadlines import wait_until

ENVS, LENGTH = 4, 2
LAYOUT = timestep_streams.layout(ENVS)
SIGNATURE = sequence_signature(LAYOUT, LENGTH, ENVS)


def queue(name="queue"):
    return reverb.Table.queue(name, 1000, signature=SIGNATURE)


def send(replay, item_ids, table="queue", shard=0):
    """Writes an item to each (writer, number), whose frames are full of 10 * writer + number."""
    with replay.client(shard).trajectory_writer(1) as sender:
        for writer, number in item_ids:
            item = tree.map_structure(lambda spec: np.zeros(spec.shape, spec.dtype.as_numpy_dtype), SIGNATURE)
            item.packed[0, :16] = item_id(writer, number).view(np.uint8)
            frames = (np.full(item.frames[0].shape, 10 * writer + number, np.uint8),)
            sender.append(item._replace(frames=frames))
            sender.create_item(table, 1.0, tree.map_structure(lambda column: column[-1], sender.history))
            sender.flush()


def contents(samples):
    return [int(sample.record.observation["eye"][0, 0, 0, 0, 0]) for sample in samples]


def test_each_is_read_once_and_the_others_are_counted(serve):
    replay = serve([queue()])
    sent = [(1, 0), (1, 0), (1, 1), (2, 0), (1, 1), (1, 2), (2, 0), (2, 1), (1, 2), (2, 2), (2, 3), (2, 4), (2, 5)]
    send(replay, sent)
    assert replay.received.dropped() == 0
    assert contents(read_batches(queue_dataset(replay, LAYOUT, "queue", LENGTH, ENVS), 6)) == [10, 11, 20, 12, 21, 22]
    assert replay.received.dropped() == 4


def test_batches_of_several_items_close_up_where_some_came_twice(serve):
    replay = serve([queue()])
    send(replay, [(1, number) for number in (0, 1, 1, 2, 2, 2, 1, 0, 3, 4, 5, 5, 6, 7)])
    samples = read_batches(queue_dataset(replay, LAYOUT, "queue", LENGTH, 2 * ENVS), 3)
    pairs = [np.asarray(sample.record.observation["eye"])[0, [0, ENVS], 0, 0, 0].tolist() for sample in samples]
    assert pairs == [[10, 11], [12, 13], [14, 15]]
    assert samples[0].record.reward.shape == (LENGTH, 2 * ENVS)


def test_what_comes_in_another_order_is_not_taken_for_known(serve):
    """A writer that sends again does not keep its order."""
    replay = serve([queue()])
    send(replay, [(1, 3), (1, 0), (1, 2), (1, 3), (1, 1), (1, 2), (1, 100), (1, 99), (1, 100), (1, 98), (1, 101)])
    samples = read_batches(queue_dataset(replay, LAYOUT, "queue", LENGTH, ENVS), 7)
    assert contents(samples) == [13, 10, 12, 11, 110, 109, 108]
    assert replay.received.dropped() == 3


@pytest.mark.slow("daily")
def test_a_dataset_that_is_built_anew_knows_what_was_received(serve):
    servers = [serve([queue()])]
    replay = ReplayHandle(lambda: servers[-1].addresses())
    reader = BatchReader(
        lambda: Elements(queue_dataset(replay, LAYOUT, "queue", LENGTH, ENVS)),
        lambda: False,
        incarnation=lambda: replay.incarnation(0),
    )
    send(replay, [(1, 0), (2, 0), (1, 1)])
    assert contents(next(reader) for _ in range(3)) == [10, 20, 11]
    servers.append(serve([queue()]))
    send(replay, [(1, 0), (2, 0), (1, 1), (1, 2), (1, 2), (2, 1), (3, 0)])
    assert contents(next(reader) for _ in range(3)) == [12, 21, 30]
    assert replay.received.dropped() == 4
    reader.close()


@pytest.mark.slow("daily")
def test_tables_and_shards_are_not_mixed_up_and_a_handle_remembers_for_itself(serve):
    replay = serve([queue("a"), queue("b")], [queue("a")])
    for writer, (table, shard) in enumerate([("a", 0), ("b", 0), ("a", 1)], start=7):
        send(replay, [(writer, 0), (writer, 1), (writer, 0), (writer, 2)], table, shard)
        samples = read_batches(queue_dataset(replay, LAYOUT, table, LENGTH, ENVS, [shard]), 3)
        assert contents(samples) == [10 * writer, 10 * writer + 1, 10 * writer + 2]
    assert replay.received.dropped() == 3
    assert ReplayHandle(replay.addresses).received.dropped() == 0


class Link:
    """A TCP connection to a server that can lose what the server answers, and then break."""

    def __init__(self, port):
        self._server_port = port
        self._sockets = []
        self._listener = socket.create_server(("localhost", 0))
        self.port = self._listener.getsockname()[1]
        self.loses_answers = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        """Breaks all connections; new ones may be made."""
        ends, self._sockets = self._sockets, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._listener.close()
        self.cut()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("localhost", self._server_port))
                self._sockets += [client, server]
                threading.Thread(target=self._carry, args=(client, server, lambda: False), daemon=True).start()
                threading.Thread(
                    target=self._carry, args=(server, client, lambda: self.loses_answers), daemon=True
                ).start()

    def _carry(self, source, destination, loses):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not loses():
                    destination.sendall(data)
        for end in (source, destination):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def link(serve):
    """A link to a server with a queue and a prioritized table of few items, and the server itself."""
    few = reverb.Table(
        "few", reverb.selectors.Prioritized(1.0), reverb.selectors.Fifo(), 100, reverb.rate_limiters.MinSize(1)
    )
    replay = serve([queue(), few])
    made = Link(int(replay.address().rpartition(":")[2]))
    yield made, replay
    made.close()


@pytest.mark.slow
def test_a_writer_that_lost_its_connection_sends_again_what_is_then_read_once(link):
    link, replay = link
    timesteps = timestep_streams.stream(ENVS, 12 * LENGTH + 1)
    writer = SequenceWriter(ReplayHandle(lambda: [f"localhost:{link.port}"]), LAYOUT, "queue", LENGTH, LENGTH)

    def write(items):
        end = items * LENGTH + (1 if writer.items_written == 0 else 0)
        for _ in range(end):
            writer.append(timesteps.pop(0), ())

    write(3)
    assert writer.ready(10, max_pending=0)
    reader = BatchReader(lambda: Elements(queue_dataset(replay, LAYOUT, "queue", LENGTH, ENVS)), lambda: False)
    read = [next(reader) for _ in range(3)]
    link.loses_answers = True
    write(4)
    assert not writer.ready(1, max_pending=0)
    read += [next(reader) for _ in range(4)]
    link.loses_answers = False
    link.cut()
    write(5)
    assert writer.ready(30, max_pending=0)
    read += [next(reader) for _ in range(5)]
    more = []
    wait_until(lambda: more.append(reader.poll(0.1)) or replay.received.dropped() >= 4, 30.0, 0.0)
    assert set(more) == {None}
    reader.close()
    # Those that were on their way come in any order.
    begins = sorted(int(sample.record.observation["body"][0, 0, 1]) for sample in read)
    assert begins == [number * LENGTH for number in range(12)]
    assert replay.received.dropped() == 4
    writer.close()


@pytest.mark.slow
def test_in_a_prioritized_table_an_item_is_never_twice_but_comes_back_if_it_was_removed(link):
    link, replay = link
    server = replay.client()
    with reverb.Client(f"localhost:{link.port}").trajectory_writer(4) as writer:

        def write(numbers):
            for number in numbers:
                writer.append(np.int64(number))
                writer.create_item("few", 1.0, writer.history[-1:])

        def there():
            """What is in the table, by key."""
            found = server.sample("few", 500, emit_timesteps=False)
            return {int(sample.info.key): int(np.ravel(sample.data[0])[0]) for sample in found}

        link.loses_answers = True
        write(range(6))
        with pytest.raises(reverb.errors.DeadlineExceededError):
            writer.flush(timeout_ms=1000)
        assert wait_until(lambda: len(there()) == 6, 60.0)
        before = there()
        server.mutate_priorities("few", deletes=[key for key, number in before.items() if number < 2])
        assert sorted(there().values()) == [2, 3, 4, 5]
        link.loses_answers = False
        link.cut()
        writer.flush(timeout_ms=60_000)
        # All six were sent again, in any order: 2 to 5 took the place of themselves, and the two that had been removed
        # came back.
        assert there() == before and sorted(before.values()) == [0, 1, 2, 3, 4, 5]
