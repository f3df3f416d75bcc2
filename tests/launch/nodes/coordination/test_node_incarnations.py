"""Which incarnations of nodes have changed since a version that another node knows."""

from callboard.launch.nodes.coordination.report_intake import NodeIncarnations


def test_an_answer_holds_only_what_is_new():
    nodes = NodeIncarnations("first coordinator")
    for index in range(100):
        nodes.update(f"actor/{index}", "a")
    known = nodes.version
    assert len(nodes.changed_since(None)) == 100 and nodes.changed_since(known) == {}
    nodes.update("actor/7", "b")
    nodes.update("actor/8", "a")
    assert nodes.changed_since(known) == {"actor/7": "b"}
    again = NodeIncarnations("second coordinator")
    again.update("actor/7", "b")
    assert again.changed_since(nodes.version) == {"actor/7": "b"}
