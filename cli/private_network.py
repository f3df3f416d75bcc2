"""A private network for a run: its ports cannot be reached from outside.

The kernel gives a user and a network namespace to an unprivileged process only if the process has a single thread.
NumPy starts threads when it is imported, so the command starts again in the same process, and this module imports only
the standard library.  Access to files does not change, and files that are written belong to the same user.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Sequence
from typing import NoReturn

from ..runtime.interpreter import callboard_command

OPTION = "--private-network"

_ENTERED: list[int] = []
"""This process, once `OPTION` has moved it."""
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1
_INTERFACE_FLAGS = struct.Struct("16sH14x")  # struct ifreq, see netdevice(7).


def run_in_private_network(arguments: Sequence[str]) -> NoReturn:
    """Replaces this process by the same command in a private network.

    Args:
      arguments: arguments of the command, including `OPTION`.
    """
    again = [argument for argument in arguments if argument != OPTION]
    command = callboard_command(*again, before=f"from {__name__} import enter_or_exit; enter_or_exit()")
    os.execv(command[0], command)


def enter_private_network() -> None:
    """Moves this process, and all processes that it will start, into a network with only a loopback interface.

    Raises:
      OSError: the kernel does not allow it.
    """
    user, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    for name, content in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(content)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, _INTERFACE_FLAGS.pack(b"lo", 0))
        name, flags = _INTERFACE_FLAGS.unpack(request)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, _INTERFACE_FLAGS.pack(name, flags | _IFF_UP))


def in_same_network(command: str) -> str:
    """Returns a command that trains with `OPTION` if this process was started with it; others as they are."""
    return command.replace("callboard train", f"callboard train {OPTION}", 1) if _ENTERED else command


def enter_or_exit() -> None:
    """Enters a private network, or prints one line and exits; only the standard library may have been imported."""
    try:
        enter_private_network()
        _ENTERED.append(os.getpid())
    except OSError as error:
        sys.stderr.write(
            f"callboard: {OPTION} needs a user and a network namespace, which this kernel or container refuses "
            f"({error.strerror}); allow them for users (sysctl user.max_user_namespaces, "
            "kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns), or leave the option out "
            "and keep the ports behind a firewall\n"
        )
        sys.exit(2)


if __name__ == "__main__":
    enter_or_exit()
