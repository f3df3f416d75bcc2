"""A replay shard in a process of its own, so that it can be killed: `python serve_windows.py <port> <directory>`."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))


def main():
    import reverb
    import tick_streams

    from callboard.replay import start_server, window_signature

    table = reverb.Table(
        "replay",
        reverb.selectors.Prioritized(0.6),
        reverb.selectors.Fifo(),
        10_000,
        reverb.rate_limiters.MinSize(1),
        signature=window_signature(tick_streams.layout(), 1),
    )
    server = start_server([table], int(sys.argv[1]), pathlib.Path(sys.argv[2]))
    print("serving", flush=True)
    server.wait()


if __name__ == "__main__":
    main()
