"""A replay shard in a process of its own, so that it can be killed, or its memory measured.

python serve_windows.py <port> <directory> [small | frames]
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))


def main():
    import reverb
    import timestep_streams

    from callboard.launch.launchers.malloc_arenas import use_one_arena
    from callboard.replay import start_server, window_signature

    # As in the process of a replay node.
    use_one_arena()

    def table(name, signature):
        return reverb.Table(
            name,
            reverb.selectors.Prioritized(0.6),
            reverb.selectors.Fifo(),
            1_000_000,
            reverb.rate_limiters.MinSize(1),
            signature=signature,
        )

    if sys.argv[3:] == ["frames"]:
        layout = timestep_streams.frames_layout()
        tables = [table("replay", window_signature(layout, steps=3, stack=4)), table("once", None)]
    else:
        tables = [table("replay", window_signature(timestep_streams.layout(), 1))]
    server = start_server(tables, int(sys.argv[1]), pathlib.Path(sys.argv[2]))
    print("serving", flush=True)
    server.wait()


if __name__ == "__main__":
    main()
