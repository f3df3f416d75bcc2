"""Wrong inputs, generated: options, recipes, cluster files and run directories that a user may give by mistake."""

import contextlib
import os
import pathlib
import typing
from typing import NamedTuple

import yaml
from hypothesis import strategies as st

from callboard.agents.agent_names import AGENTS as REGISTERED
from callboard.launch.experiments.settings import RECIPES, setting_fields
from callboard.studies.tuning.search_definition import Tuning

ENVIRONMENTS = {
    "cql": "Pendulum-v1",
    "d4pg": "Pendulum-v1",
    "dmpo": "Pendulum-v1",
    "drq": "MinAtar/Breakout-v1",
    "sac": "Pendulum-v1",
    "td3": "Pendulum-v1",
    "td3_bc": "Pendulum-v1",
}
OF_TEAMS = {"qmix", "vdn"}
AGENTS = sorted(REGISTERED.keys() - OF_TEAMS)
TYPES = {agent: {name: field.hint for name, field in setting_fields(agent).items()} for agent in AGENTS}


class Case(NamedTuple):
    """A command line, and the files that it is given in the working directory."""

    arguments: list[str]
    files: dict[str, bytes | str] = {}
    """Content by name; a text names what else it is: directory, pipe, loop or device."""
    is_wrong: bool = True
    """Whether it cannot be right; otherwise it may be accepted."""


def make_files(files, directory: pathlib.Path):
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif content == "directory":
            path.mkdir(exist_ok=True)
        elif content == "pipe":
            with contextlib.suppress(FileExistsError):
                os.mkfifo(path)
        elif content == "loop":
            path.symlink_to(path.name)
        elif content == "device":
            path.symlink_to("/dev/zero")


words = st.text("abcdefghijklmnopqrstuvwxyz_-.", min_size=1, max_size=12)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
numbers = st.one_of(
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.sampled_from([0, -1, 10**400, float("nan"), float("inf"), -0.0, 1e308]),
)
plain = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)


def not_of(hint):
    """Values of YAML that the annotation of a setting does not take."""
    kinds = {without_range(kind) for kind in typing.get_args(without_range(hint)) or [without_range(hint)]}
    wrong = [st.dictionaries(words, st.integers(), min_size=1, max_size=2)] if not is_mapping(hint) else []
    if typing.get_origin(hint) is not tuple:
        wrong.append(st.lists(st.integers(), min_size=1, max_size=3))
    else:
        wrong.append(st.lists(st.sampled_from(["a", None, 1.5, [1], True]), min_size=1, max_size=3))
    if bool not in kinds:
        wrong.append(st.booleans())
    if type(None) not in kinds:
        wrong.append(st.none())
    if str not in kinds:
        wrong.append(st.sampled_from(["many", "1,5", "1 2", "0x", "1e", "--", " ", "٣", "$HOME", "1.2.3", ".nan"]))
    if float in kinds:
        wrong.append(st.just(float("nan")))
    return st.one_of(wrong)


def without_range(hint):
    return typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint


def is_mapping(hint):
    return typing.get_origin(hint) is dict


def dumped(value):
    return yaml.dump(value, allow_unicode=True, default_flow_style=True, width=10**6).removesuffix("...\n").strip()


def base(agent):
    return ["train", agent, "--env", ENVIRONMENTS.get(agent, "CartPole-v1"), "--launcher", "inline"]


@st.composite
def wrong_options(draw):
    agent = draw(st.sampled_from(AGENTS))
    types = TYPES[agent]
    known = sorted(name for name in types if name != "run_dir")
    kind = draw(st.sampled_from(["unknown", "type", "missing", "range", "stray", "environment", "launcher", "removal"]))
    arguments = base(agent)
    if kind == "unknown":
        name = draw(words.filter(lambda word: word.strip("-").replace("-", "_").partition(".")[0] not in types))
        own = ("help", "h", "recipe", "launcher", "resume", "private-network", "cluster", "host", "allow-public")
        if name in own or name.startswith(("no-", "no_", "env-options", "env_options", "-")):
            name = "unknown-option"
        return Case([*arguments, draw(st.sampled_from([f"--{name}", f"--{name}=1", f"--agent.{name}x"])), "1"])
    if kind == "type":
        name = draw(
            st.sampled_from([name for name in known if types[name] not in (str, typing.Any) and "devices" not in name])
        )
        if is_mapping(types[name]):
            value = draw(st.sampled_from(["1", "a", "[1]", "null", "{1: 2}", "{a: *b}"]))
        else:
            value = dumped(draw(not_of(types[name])))
        return Case([*arguments, f"--{name.replace('_', '-')}={value}"])
    if kind == "missing":
        name = draw(st.sampled_from([name for name in known if types[name] is not bool]))
        return Case([*arguments, f"--{name.replace('_', '-')}"])
    if kind == "range":
        name = draw(st.sampled_from([name for name in known if without_range(types[name]) is int]))
        too_low, too_high = st.integers(-(10**9), -1), st.integers(2**63, 10**25)
        value = draw(too_low if name.startswith("agent.") else st.one_of(too_low, too_high))
        return Case([*arguments, f"--{name.replace('_', '-')}={value}"])
    if kind == "stray":
        stray = draw(texts.filter(lambda text: not text.startswith("-")))
        return Case([*arguments, stray])
    if kind == "environment":
        name = draw(st.one_of(words, texts, st.sampled_from(NAMES)))
        return Case(["train", agent, f"--env={name}", "--launcher", "inline"], is_wrong=False)
    if kind == "launcher":
        launcher = draw(words)
        return Case([*arguments[:-1], launcher], is_wrong=launcher not in ("inline", "threads", "processes"))
    name = draw(st.sampled_from([name for name in known if types[name] is not bool]))
    return Case([*arguments, f"--no-{name.replace('_', '-')}", *draw(st.sampled_from([[], ["1"]]))])


NAMES = [
    *("os:system", "subprocess:getoutput", "builtins:eval", ":", "a:", ":a", ".a:b", "a..b:c", "a:b:c", "procgen:"),
    *("procgen:procgen-coinrun-v0", "ALE/", "MinAtar/x", "gymnasium:", "gymnasium:gymnasium:CartPole-v1", "x/y:z"),
    *("Breakout-v4", "CartPole-v99", "Reacher-v2", "GymV21Environment-v0", "callboard:x", "numpy:array", "json:loads"),
    *("phys2d/CartPole-v0", "LunarLander-v3", "__main__:Local", "tests:x", "importlib:import_module", "site:main"),
]


@st.composite
def wrong_recipes(draw):
    kind = draw(st.sampled_from(["bytes", "text", "plain", "value", "key", "odd", "cut", "special", "name"]))
    arguments = ["train", "--recipe", "recipe.yaml", "--launcher", "inline"]
    agent = draw(st.sampled_from(AGENTS))
    right = {"agent": {"name": agent}, "env": ENVIRONMENTS.get(agent, "CartPole-v1")}
    if kind == "bytes":
        return Case(arguments, {"recipe.yaml": draw(st.binary(max_size=60))})
    if kind == "text":
        return Case(arguments, {"recipe.yaml": draw(texts).encode()})
    if kind == "plain":
        key = draw(st.sampled_from(["agent", "env", "env_options"]))
        return Case(arguments, {"recipe.yaml": dumped({**right, key: draw(plain)}).encode()}, is_wrong=False)
    if kind == "value":
        types = {name: hint for name, hint in TYPES[agent].items() if hint is not typing.Any}
        name = draw(st.sampled_from([name for name in sorted(types) if "devices" not in name and name != "run_dir"]))
        value = draw(not_of(types[name]) if not is_mapping(types[name]) else st.sampled_from([1, "a", [1], None]))
        within = right["agent"] if name.startswith("agent.") else right
        within[name.removeprefix("agent.")] = value
        return Case(arguments, {"recipe.yaml": dumped(right).encode()})
    if kind == "key":
        key = draw(st.one_of(texts, numbers, st.booleans(), st.none()))
        if key in ("agent", "env") or key in TYPES[agent]:
            key = "a key"
        return Case(arguments, {"recipe.yaml": dumped({**right, key: draw(plain)}).encode()})
    if kind == "odd":
        return Case(arguments, {"recipe.yaml": draw(st.sampled_from(ODD))})
    if kind == "cut":
        name = draw(st.sampled_from(sorted(RECIPES.glob("*.yaml"))))
        content = name.read_bytes()
        cut = content[: draw(st.integers(0, len(content)))]
        return Case(arguments, {"recipe.yaml": cut}, is_wrong=False)
    if kind == "special":
        return Case(arguments, {"recipe.yaml": draw(st.sampled_from(["directory", "pipe", "loop", "device"]))})
    return Case([*arguments[:2], draw(texts.filter(lambda text: "/" not in text)), *arguments[3:]])


BOMB = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20)
)
ODD = [
    b"",
    b"\n",
    b"- a\n- b\n",
    b"yes: 1\n",
    b"null: 1\n",
    b"1: 2\n",
    b"[a]: 1\n",
    b"? {a: 1}\n: 1\n",
    b"agent: {name: 5}\n",
    b"agent: [impala]\n",
    b"agent: impala\n",
    b"agent: {name: [impala]}\nenv: CartPole-v1\n",
    b"agent: {name: impala}\nenv: [5]\n",
    b"agent: {name: impala}\nenv: 5\n",
    b"agent: {name: impala}\nenv: CartPole-v1\nmax_steps: null\n",
    b"agent: {name: impala}\nenv: CartPole-v1\nstop_return: .nan\n",
    b"agent: {name: impala}\nenv: CartPole-v1\nstop_return: .inf\n",
    b"agent: {name: impala}\nenv: CartPole-v1\nrun_dir: ''\n",
    b'agent: {name: impala}\nenv: CartPole-v1\nrun_dir: "a\\0b"\n',
    b"agent: {name: impala}\nenv: CartPole-v1\nenv_options: {yes: 1}\n",
    b"agent: {name: impala}\nenv: CartPole-v1\nenv_options: {a: !!python/object/apply:os.system [ls]}\n",
    b"agent: {name: 'os:system'}\nenv: CartPole-v1\n",
    b"agent: {name: 'no_module:Agent'}\nenv: CartPole-v1\n",
    b"agent: {name: impala, network: {torso: 'os:system'}}\nenv: CartPole-v1\n",
    b"agent: {name: impala}\nenv: 'subprocess:getoutput'\nenv_options: {cmd: 'touch was_executed'}\n",
    b"agent: {name: impala}\nenv: CartPole-v1\nagent: {name: ppo}\n",
    b"a: !!int x\n",
    b"a: !!timestamp x\n",
    b"a: !!binary x\n",
    b"a: !!float x\n",
    b"a: 2020-99-99\n",
    b"a: !!set {x}\n",
    b"<<: {a: 1}\n",
    b"a: *b\n",
    b"a: b: c\n",
    b"\ta: 1\n",
    b"%YAML 9.9\n---\na: 1\n",
    b"--- a\n--- b\n",
    b"a: '" + b"x" * 2**21 + b"'",
    b"[" * 5000,
    b"{a: " * 3000,
    b"a: " + b"9" * 5000,
    BOMB.encode(),
    "agent: {name: impala}\nenv: CartPole-v1\nseed: -1\n".encode("utf-16"),
    "agent: {name: impala}\nenv: Grüße\n".encode("latin-1"),
    b"\xef\xbb\xbfagent: {name: impal}\n",
]


@st.composite
def wrong_clusters(draw):
    right = {
        "hosts": {"a": "10.0.0.1", "b": "10.0.0.2"},
        "ports": "20000-20099",
        "learner": ["a"],
        "replay": ["a"],
        "actor": {"a": 1, "b": 1},
        "evaluator": ["a"],
    }
    arguments = [*base("impala")[:-1], "hosts", "--cluster", "cluster.yaml", "--host", "a", "--run-dir", "run"]
    kind = draw(st.sampled_from(["value", "key", "bytes", "address", "ports", "special", "host", "count"]))
    if kind == "value":
        key = draw(st.sampled_from(["hosts", "ports", "learner", "replay", "actor"]))
        right[key] = draw(st.sampled_from([None, 5, "x", [], {}, [["a"]], [None], {"a": "b"}, {"a": None}, True, 1.5]))
    elif kind == "key":
        right[draw(words.filter(lambda word: word not in (*right, "patience", "coordinator", "inference")))] = 1
    elif kind == "bytes":
        return Case(arguments, {"cluster.yaml": draw(st.binary(max_size=40))})
    elif kind == "address":
        addresses = ["999.1.1.1", "1.2.3", "", " ", "a b", "http://a", "a:1", "-a", "[::1]", "1.2.3.4.5", "8.8.8.8"]
        right["hosts"]["b"] = draw(st.sampled_from([*addresses, 5, None, ["a"], 1.5, True]))
    elif kind == "ports":
        wrong = ["1-2", "20000", "x-y", "70000-80000", "20099-20000", [1], [20000, "x"], {}, -1, None, "9" * 400 + "-1"]
        right["ports"] = draw(st.sampled_from(wrong))
    elif kind == "special":
        return Case(arguments, {"cluster.yaml": draw(st.sampled_from(["directory", "pipe", "loop", "device"]))})
    elif kind == "host":
        arguments[arguments.index("--host") + 1] = draw(words.filter(lambda word: word not in "ab" and word[0] != "-"))
    else:
        right["actor"] = {"a": draw(st.sampled_from([-1, 10**9, 1.5, "x", None, True, [1], float("nan")]))}
    return Case(arguments, {"cluster.yaml": dumped(right).encode()})


EXPERIMENT = b"---\nagent: {name: impala}\nenv: CartPole-v1\nmax_steps: 1000\nrun_dir: run\n...\n"


@st.composite
def wrong_runs(draw):
    commands = [
        ["evaluate", "run"],
        ["export", "run", "policy"],
        ["train", "--resume", "--run-dir", "run", "--launcher", "inline"],
    ]
    arguments = draw(st.sampled_from(commands))
    name = "run/experiment.yaml"
    kind = draw(st.sampled_from(["cut", "changed", "bytes", "special", "empty", "path", "odd", "option"]))
    if kind == "cut":
        return Case(arguments, {name: EXPERIMENT[: draw(st.integers(0, len(EXPERIMENT) - 6))]})
    if kind == "changed":
        place = draw(st.integers(0, len(EXPERIMENT) - 1))
        changed = EXPERIMENT[:place] + draw(st.binary(min_size=1, max_size=1)) + EXPERIMENT[place + 1 :]
        return Case(arguments, {name: changed}, is_wrong=False)
    if kind == "bytes":
        return Case(arguments, {name: draw(st.binary(max_size=40))})
    if kind == "special":
        return Case(arguments, {name: draw(st.sampled_from(["directory", "pipe", "loop", "device"]))})
    if kind == "empty":
        return Case(arguments, {"run": draw(st.sampled_from(["directory", "pipe", "loop", "device"]))})
    if kind == "path":
        paths = [
            "",
            " ",
            "nowhere",
            "a/b/c",
            "n" * 300,
            "/dev",  # Not "/" or "..", below which there may be runs.
            "/proc/self/mem",
            "../nowhere",
            "~",
            "run\n",
            "-",
            "\udcff",
            "ä" * 200,
        ]
        path = draw(st.sampled_from(paths))
        return Case([path if argument == "run" else argument for argument in arguments])
    if kind == "odd":
        odd = draw(st.sampled_from(ODD))
        return Case(arguments, {name: odd}, is_wrong=b"run_dir" not in odd)  # Where it lies comes first.
    option = draw(
        st.sampled_from(["--env-options.gravity=1", "--agent.network.core=grus", "--seed=x", "--recipe=ppo-cartpole"])
    )
    return Case([*commands[2], option], {name: EXPERIMENT})


@st.composite
def wrong_commands(draw):
    train = base("impala")
    fixed = [
        ["evaluate"],
        ["evaluate", "run", "more"],
        ["evaluate", "run", "--episodes"],
        ["evaluate", "run", "--episodes", "many"],
        ["evaluate", "run", "--episodes", "0"],
        ["evaluate", "run", "--checkpoint", "first"],
        ["evaluate", "run", "--vidoe"],
        [*train, "--loggers", "wandbb"],
        [*train, "--loggers", "os:system"],
        [*train, "--video-every", "0"],
        [*train, "--video-every", "1", "--evaluator", "false"],
        [*train, "--prometheus-port", "0"],
        [*train, "--prometheus-port", "99999"],
        [*train, "--log-level", "loud"],
        [*train, "--eager=maybe"],
        ["train", "impala", "--env", "CartPole-v1", "--launcher", "processes", "--eager"],
        ["evaluate", "run", "--steps", "0"],
        ["evaluate", "run", "--steps", "many"],
        ["evaluate", "run", "--steps", "5", "--episodes", "5"],
        ["evaluate", "run", "--render", "huge"],
        ["top"],
        ["top", "no_run"],
        ["top", "no_run", "--seconds", "0"],
        ["top", "no_run", "--stack"],
        ["export", "run"],
        ["export"],
        ["list"],
        ["list", "agent"],
        ["list", "agents", "--jason"],
        ["doctor", "now"],
        ["cluster"],
        ["cluster", "chek", "x", "--host", "a"],
        ["cluster", "check", "no.yaml"],
        ["cluster", "check", "no.yaml", "--host", "a", "--seconds", "x"],
        ["graph"],
        ["graph", "impala"],
        ["graph", "impala", "--env", "CartPole-v1", "--actors", "1000000"],
        [*train, "--launcher"],
        [*train, "--ray-wait", "x"],
        [*train, "--ray-wait", "5"],
        [*train, "--host", "a"],
        [*train, "--resume"],
        [*train[:-1], "ray", "--ray-cpus", "actor"],
        [*train[:-1], "ray", "--ray-cpus.actors", "1"],
        [*train[:-1], "ray", "--ray-strategy", "x"],
        [*train[:-1], "ray", "--ray-address", "ray://a:1"],
        [*train[:-1], "hosts"],
        [*train, "--private-network=yes"],
        [*train, "--stop-when", "learner/los < 1"],
        [*train, "--stop-when", "learner/temperature < 1"],
        [*train, "--stop-when", "episodes"],
        [*train, "--stop-when", "episodes > 5", "--stop-when", "episodes = 5"],
        [*train, "--stop-when", "[1, 2]"],
        [*train, "--stop-when", "evaluator/return > 5", "--no-evaluator"],
        [*train, "--patience", "5", "--no-evaluator"],
        [*train, "--patience", "0"],
        [*train, "--init-from", "nowhere"],
        [*train, "--init-from", "nowhere@bset"],
        [*train, "--init-from", "/", "--init-parts", "torso"],
        [*train, "--init-parts", "torso"],
        [*train, "--freeze", "tors"],
        [*train, "--freeze", "*"],
        [*train, "--freeze", "torso,"],
        [*train, "--freeze", "[1]"],
        [*train, "--keep-checkpoints", "0"],
        [*train, "--checkpoint-every-steps", "0"],
        [*train, "--max-seconds", "0"],
        [*train, "--max-seconds", "nan"],
        [*train, "--max-learner-steps", "0"],
        [*train, "--max-learner-steps", "9", "--agent.updates-per-call", "2"],
        ["train", "--recipe"],
        ["train", "--recipe", ""],
        ["train"],
    ]
    kind = draw(st.sampled_from(["fixed", "unknown", "tune", "search", "study", "odd study"]))
    if kind == "study":
        study = {"agents": ["impala"], "environments": ["CartPole-v1"], "launcher": "inline", "seeds": []}
        key = draw(st.sampled_from(["agents", "environments", "variants", "grid", "settings", "launcher", "report"]))
        return Case(["study", "study.yaml"], {"study.yaml": dumped({**study, key: draw(plain)}).encode()})
    if kind == "odd study":
        return Case(["study", "study.yaml"], {"study.yaml": draw(st.sampled_from(ODD))})
    if kind == "fixed":
        return Case(draw(st.sampled_from(fixed)))
    if kind == "unknown":
        commands = (
            "train",
            "top",
            "tune",
            "evaluate",
            "compare",
            "study",
            "export",
            "cluster",
            "graph",
            "list",
            "doctor",
        )
        return Case([draw(texts.filter(lambda text: text not in (*commands, "-h", "--help")))])
    tune = ["tune", "impala", "--env", "CartPole-v1", "--search", "agent.optimizer.learning_rate=loguniform(1e-4,1e-2)"]
    if kind == "tune":
        name = draw(st.sampled_from(["samples", "grace-steps", "reduction-factor", "concurrent", "cpus-per-trial"]))
        assert hasattr(Tuning, "check")
        return Case([*tune, f"--{name}", draw(st.sampled_from(["x", "-1", "nan", "", "[1]"]))])
    searches = ["", "=", "x", "a=b", "actors=uniform(1)", "actors=choice()", "env=choice(a)", "actors=randint(2,1)"]
    searches += ["agent.x=choice(1)", "actors.x=choice(1)", "actors=choice(__import__('os'))", "actors=uniform(a,b)"]
    searches += [
        "agent.optimizer.learning_rate=loguniform(-1,1)",
        "actors=" + "(" * 300,
        "actors=choice(x)",
        "seed=uniform(0,1)",
    ]
    return Case([*tune[:-1], draw(st.sampled_from(searches))])


cases = st.one_of(wrong_options(), wrong_recipes(), wrong_clusters(), wrong_runs(), wrong_commands())
