"""`callboard zoo`: takes trained policies from zoos, evaluates them again, and offers own ones."""

import json
import pathlib
from collections.abc import Sequence

from ..errors import CallboardError, printable, rounded, with_deviation
from ..studies.zoo.zoo_policies import MOST_EPISODES, WHERE_POLICIES_ARE, copy_policy, find_policies, find_policy
from .command_parser import CommandParser
from .evaluate import stdout_to_stderr
from .run_arguments import notify

_ARGUMENTS = {"list": (), "get": ("NAME", "DIR"), "evaluate": ("NAME",), "push": ("RUN", "ZOO")}
_EPISODES = 100


def main(arguments: Sequence[str]) -> int:
    parser = CommandParser(
        "callboard zoo",
        description="Takes trained policies from zoos: list; get NAME DIR copies one as a run directory; evaluate NAME "
        "compares one with its score; push RUN ZOO evaluates a run's best policy, or that of the best run in a folder, "
        "and adds it to a zoo, a folder or a URL.",
    )
    parser.add_argument("what", choices=tuple(_ARGUMENTS), help="what to do")
    parser.add_argument("names", nargs="*", metavar="NAME", help="see above")
    parser.add_argument(
        "--from", action="append", default=[], dest="places", metavar="ZOO",
        help="a zoo beside those of installed wheels, a folder or a URL; may be given several times",
    )  # fmt: skip
    parser.add_argument("--name", help="push: name of the policy; by default agent and environment")
    parser.add_argument("--episodes", type=int, metavar="N", help=f"push: episodes of the evaluation ({_EPISODES})")
    parser.add_argument("--json", action="store_true", help="list, evaluate: print JSON")
    parser.add_argument(
        "--trust", action="store_true", help="take what belongs to another user: the settings of a run name code"
    )
    known = parser.parse_args(arguments)
    wanted = _ARGUMENTS[known.what]
    if len(known.names) != len(wanted):
        raise CallboardError(f"write callboard zoo {' '.join((known.what, *wanted))}")
    for name, only in (("name", ("push",)), ("episodes", ("push",)), ("json", ("list", "evaluate"))):
        if getattr(known, name) not in (None, False) and known.what not in only:
            raise CallboardError(f"--{name} is not for callboard zoo {known.what}: leave it out")
    for name, text in (*zip(wanted, known.names, strict=True), *(("--from", place) for place in known.places)):
        if not text:
            raise CallboardError(f"{name} is empty: write a name, a folder or a URL")
    if known.episodes is not None and not 1 <= known.episodes <= MOST_EPISODES:
        raise CallboardError(f"--episodes must be from 1 to {MOST_EPISODES:,}, not {known.episodes}")
    if known.what == "list":
        return _list(known.places, known.json)
    if known.what == "push":
        with stdout_to_stderr():
            from ..studies.zoo.zoo_scores import push_policy

            run, zoo = known.names
            pushed = push_policy(run, zoo, known.name, known.episodes or _EPISODES, known.trust, notify)
        score = with_deviation(pushed.card.mean, pushed.card.std)
        print(printable(f"{pushed.place} now offers {pushed.name}, with a mean return of {score}"))
        return 0
    policy = find_policy(known.names[0], known.places, notify)
    if known.what == "get":
        copy_policy(policy, pathlib.Path(known.names[1]), known.trust)
        print(printable(f"{known.names[1]} is now {policy.name}, from {policy.place}"))
        return 0
    with stdout_to_stderr():
        from ..studies.zoo.zoo_scores import evaluate_policy

        again = evaluate_policy(policy, known.trust, notify)
    if known.json:
        print(json.dumps({"mean": again.mean, "recorded": again.card.mean, "agrees": again.agrees}))
    else:
        recorded = f"recorded {with_deviation(again.card.mean, again.card.std)}"
        print(printable(f"mean {with_deviation(again.mean, again.std)}, {recorded}"))
        print(printable("as recorded" if again.agrees else f"they differ by more than {rounded(again.most)}"))
    return 0 if again.agrees else 1


def _list(places: Sequence[str], as_json: bool) -> int:
    found = find_policies(places)
    for _, problem in found.problems:
        notify(problem)
    if as_json:
        print(json.dumps([{"name": one.name, "zoo": one.place, **one.card._asdict()} for one in found.policies]))
    elif not found.policies:
        policies = "no policies that can be used" if found.problems else "no policies"
        print(printable(f"{policies}: {WHERE_POLICIES_ARE}"))
    else:
        rows = [("name", "agent", "environment", "steps", "return")]
        rows += [
            (
                one.name,
                one.card.agent,
                one.card.env,
                f"{one.card.steps:,} {one.card.counted}".removesuffix(" environment steps"),
                with_deviation(one.card.mean, one.card.std),
            )
            for one in found.policies
        ]
        widths = [max(len(printable(text)) for text in column) for column in zip(*rows, strict=True)]
        for row in rows:
            print(printable("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()))
    return 0
