"""A node of a user's own that serves a method over Courier."""

import launchpad as lp


class Answers:
    def answer(self):
        return 42


def add_nodes(program, run):
    with program.group("answers"):
        program.add_node(lp.CourierNode(Answers))
