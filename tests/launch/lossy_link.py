"""A cable that loses and delays packets: passes frames between two network interfaces.

The kernel's own `sch_netem` is not in all kernels; this needs raw sockets alone.  Arguments: the two interfaces, the
share of packets that are lost, the seconds by which the others are delayed, and a seed.
"""

import collections
import contextlib
import random
import select
import socket
import sys
import time

_SOL_PACKET, _PACKET_VNET_HDR, _PACKET_IGNORE_OUTGOING = 263, 15, 23
_EVERY_PROTOCOL = 3
_LARGEST = 70_000


def opened(interface):
    """Returns a socket that receives and sends all frames of an interface, as large as the kernel passes them on."""
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    raw.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    raw.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    raw.bind((interface, _EVERY_PROTOCOL))
    return raw


def relay(one, other, loss, delay, seed):
    ends, chance, waiting = {one: other, other: one}, random.Random(seed), collections.deque()
    while True:
        left = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for end in select.select(list(ends), [], [], left)[0]:
            frame = end.recv(_LARGEST)
            if chance.random() >= loss:
                waiting.append((time.monotonic() + delay, ends[end], frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, end, frame = waiting.popleft()
            with contextlib.suppress(OSError):
                end.send(frame)


if __name__ == "__main__":
    first, second = map(opened, sys.argv[1:3])
    print("open", flush=True)
    relay(first, second, float(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
