"""Ways in which a file may be damaged."""

import pathlib


def truncate(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def empty(path):
    path.write_bytes(b"")


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


DAMAGES = {"truncated": truncate, "emptied": empty, "missing": pathlib.Path.unlink, "changed": flip}
