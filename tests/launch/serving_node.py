"""A node of a user's own that serves a method over Courier."""

import launchpad as lp

from callboard.settings.named_objects import nameable


class Answers:
    def answer(self):
        return 42


@nameable
def add_nodes(program, run):
    with program.group("answers"):
        program.add_node(lp.CourierNode(Answers))
