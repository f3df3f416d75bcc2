"""A replay shard in a process of its own, so that it can be killed, or its memory measured.

python serve_windows.py <port> <directory> [small | frames]
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))


def main():
    import reverb
    import timestep_streams

    from callboard.launch.launchers.node_processes.malloc_arenas import use_one_arena
    from callboard.replay import WindowFormat, start_server

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
        tables = [table("replay", WindowFormat(layout, length=3, stack=4).signature()), table("once", None)]
    else:
        tables = [table("replay", WindowFormat(timestep_streams.layout(), length=1).signature())]
    server = start_server(tables, int(sys.argv[1]), pathlib.Path(sys.argv[2]))
    print("serving", flush=True)
    server.wait()


if __name__ == "__main__":
    main()
