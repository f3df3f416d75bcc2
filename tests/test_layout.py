"""The rules of the code: who may import whom, names and lengths of modules, the form of error messages."""

import ast
import collections
import functools
import graphlib
import importlib.util
import pathlib
import re
import sys

import pytest
from code_size import code_size
from parsed_modules import nodes_of, parsed

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROOT_MODULES = {"action_masks", "callbacks", "data", "errors", "policy_client", "specs", "transitions"}
LAYERS = (
    {"messages", "runtime", "files"},
    ROOT_MODULES,
    {"settings"},
    {"networks", "environments", "replay"},
    {"agents"},
    {"launch"},
    {"studies"},
    {"cli"},
)
"""Packages, and modules of the root, from the lowest to the highest: one imports only those below its layer."""
NOT_OF_THE_LIBRARY = ("benchmarks", "examples", "tests", "docs")
MOST_MODULES, MOST_IN_ROOT = 25, 10
TAKING_AN_EXPERIMENT = 15
READING_AN_EXPERIMENT = 39
"""Modules that take a whole `Experiment`, and those that read fields of one, in all.  Both numbers may only shrink."""
LIBRARY_MODULES = 637
LIBRARY_LINES = 87_539
"""Size of the library.  It grows only where somebody raises these numbers; `python tests/code_size.py` prints them."""
VAGUE = {"utils", "util", "helpers", "helper", "common", "base", "misc", "tools", "shared", "core", "stuff", "main"}


def in_packages(*names):
    return [path for name in names for path in sorted((ROOT / name).rglob("*.py"))]


LIBRARY = sorted(ROOT.glob("*.py")) + in_packages(*sorted(set().union(*LAYERS)))
BENCHMARKS = in_packages("benchmarks")


def package_of(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def name_of(path):
    parts = ("callboard", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def imported_names(path):
    """Absolute names of what a module imports: at its top, inside functions, for annotations only, and by calls.

    Of those for annotations only, the package's own are left out: it only gives names to what is imported on first use.
    """
    package = ".".join(["callboard", *path.relative_to(ROOT).parts[:-1]])
    names = names_called(nodes_of(path), package)
    return names + names_in_statements(parsed(path), package, without_annotations=path == ROOT / "__init__.py")


def names_in_statements(tree, package, without_annotations=False):
    """Absolute names of what the import statements in a module of a package import."""
    found, todo = [], [tree]
    while todo:
        node = todo.pop()
        if without_annotations and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        todo += (child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            found += [f"{module}.{alias.name}" for alias in node.names]
            found += [module] if module != "callboard" else []
    return found


def names_called(nodes, package):
    """Absolute names that are given as texts to what imports modules."""
    return [
        importlib.util.resolve_name(argument.value, package)
        for node in nodes
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in IMPORTING
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


IMPORTING = ("import_module", "__import__", "run_module")


def modules_imported(path, modules):
    """The modules among `modules` that a module imports; a package's `__init__` only if names are taken from it."""
    names = set(imported_names(path)) & modules
    deeper = {name for name in names if any(other.startswith(f"{name}.") for other in imported_names(path))}
    return names - {name_of(path)} - {name for name in deeper if not _takes_from(path, name, modules)}


def _takes_from(path, package, modules):
    own = {name for name in imported_names(path) if name.rpartition(".")[0] == package}
    return bool(own - modules)


def imports_above(package, names):
    """The names that a module of a package, or of the root, imports from its own layer or from those above it.

    Names of the library itself are above all packages, since they are imported from all on first use.
    """
    level = {package: number for number, layer in enumerate(LAYERS) for package in layer}
    wrong = []
    for name in names:
        library, _, rest = name.partition(".")
        imported = rest.partition(".")[0]
        if library in NOT_OF_THE_LIBRARY or imported in NOT_OF_THE_LIBRARY and library == "callboard":
            wrong.append(name)
        elif (
            library == "callboard"
            and imported not in (package, "__version__")
            and not {package, imported} <= ROOT_MODULES
        ):
            if level.get(imported, len(LAYERS)) >= level.get(package, len(LAYERS) + 1):
                wrong.append(name)
    return wrong


def test_packages_import_only_layers_below_theirs():
    assert ROOT_MODULES | {"__init__", "__main__", "setup"} == {path.stem for path in ROOT.glob("*.py")}
    assert not {path: wrong for path in LIBRARY if (wrong := imports_above(package_of(path), imported_names(path)))}


@pytest.mark.parametrize(
    "text",
    [
        "from ..launch.program import Graph",
        "def f():\n    from ..launch import program",
        "import callboard.launch.program",
        "from .. import Experiment",
        "from callboard import launch",
        "import callboard\ncallboard.Experiment",
        "importlib.import_module('callboard.launch.program')",
        "importlib.import_module('..launch.program', __package__)",
        "import_module(name='callboard.launch.program')",
        "__import__('callboard.launch.program')",
        "import tests.agent_cases",
        "from ..benchmarks import harness",
        "from ..errors import CallboardError",
    ],
)
def test_an_import_of_a_layer_above_is_found(text):
    tree = ast.parse(text)
    names = names_in_statements(tree, "callboard.files") + names_called(ast.walk(tree), "callboard.files")
    assert imports_above("files", names)


def test_imports_of_layers_below_are_allowed():
    tree = ast.parse("from .. import __version__, specs\nfrom . import launcher\nfrom ..files import manifest")
    assert not imports_above("launch", names_in_statements(tree, "callboard.launch"))
    assert not imports_above("specs", ["callboard.data", "callboard.messages.foreign_names", "numpy"])
    assert imports_above("specs", ["callboard.settings.setting_types"])


def children_that_import_each_other(package, imports):
    """The folders and modules of a package that import each other in a circle, in words; empty if there is none.

    A module that takes a name from a package in which it lies is one, since the package is made of its modules.

    Args:
      package: dotted name.
      imports: pairs of dotted names, a module and one that it imports.
    """
    graph, reasons = {}, {}
    for importer, imported in imports:
        if imported == package and importer.startswith(f"{package}."):
            return f"{importer} imports {imported}"
        if importer.startswith(f"{package}.") and imported.startswith(f"{package}."):
            above, below = (name.removeprefix(f"{package}.").partition(".")[0] for name in (importer, imported))
            if above != below:
                graph.setdefault(above, set()).add(below)
                reasons[above, below] = f"{importer} imports {imported}"
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        circle = error.args[1]
        return "; ".join(reasons[pair] for pair in zip(circle[1:], circle, strict=False))
    return ""


def test_a_folder_imports_only_folders_below_it():
    modules = {name_of(path): path for path in LIBRARY}
    imports = [(name, other) for name, path in modules.items() for other in modules_imported(path, modules.keys())]
    for package in sorted({name.rpartition(".")[0] for name in modules if "." in name}):
        assert not children_that_import_each_other(package, imports)


def test_a_circle_of_folders_is_found():
    imports = [("p.a.x", "p.b.y"), ("p.b.z", "p.c")]
    assert not children_that_import_each_other("p", imports)
    assert children_that_import_each_other("p", [*imports, ("p.a.x", "p")]) == "p.a.x imports p"
    circle = children_that_import_each_other("p", [*imports, ("p.c", "p.a.w")])
    assert set(circle.split("; ")) == {"p.a.x imports p.b.y", "p.b.z imports p.c", "p.c imports p.a.w"}


def test_no_modules_import_each_other():
    modules = {name_of(path): path for path in LIBRARY + BENCHMARKS}
    graph = {name: modules_imported(path, modules.keys()) for name, path in modules.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_only_launch_opens_sockets():
    for path in LIBRARY:
        if package_of(path) not in ("launch", "studies", "cli"):
            imported = {name.split(".")[0] for name in imported_names(path)}
            assert not imported & {"launchpad", "courier", "ray", "socket"}, path


def test_launch_knows_algorithms_through_the_registry_only():
    registry = (ROOT / "agents" / "agent_names.py").read_text()
    for path in LIBRARY:
        if package_of(path) in ("launch", "studies", "cli") and path.name != "preload.py":
            for name in imported_names(path):
                algorithm = name.removeprefix("callboard.agents.").split(".")[0]
                assert f"callboard.agents.{algorithm}:" not in registry, f"{path.name} imports {name}"


def test_agents_declare_what_launch_has_to_know():
    """Whatever runs agents calls their methods, and looks for no fields or types by which it would know algorithms."""
    above = [path for path in LIBRARY if package_of(path) in ("launch", "studies", "cli")]
    looks = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path in above
        for node in nodes_of(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("hasattr", "getattr", "vars", "isinstance")
        and re.search(r"(?i)agent|learner\b", ast.unparse(node.args[0]))
        and not (node.func.id == "isinstance" and ast.unparse(node.args[1]) in ("Agent", "Mapping", "type"))
    ]
    assert not looks


def test_a_package_can_be_surveyed():
    for package in {path.parent for path in LIBRARY}:
        modules = [path for path in package.glob("*.py") if path.name not in ("__init__.py", "setup.py")]
        assert len(modules) <= MOST_MODULES, f"group the {len(modules)} modules of {package} by what they are for"


def test_the_root_has_only_modules_that_users_import():
    assert len(list(ROOT.glob("*.py"))) <= MOST_IN_ROOT, "what packages share is in a package below them"


def names_experiment(annotation):
    return annotation is not None and re.search(r"\bExperiment\b", ast.unparse(annotation))


def takes_experiment(tree):
    """Whether a function of a module has a whole `Experiment` as an argument or result."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    arguments = [node for node in ast.walk(tree) if isinstance(node, ast.arg)]
    return any(map(names_experiment, [one.returns for one in functions] + [one.annotation for one in arguments]))


def reads_experiment(tree):
    """Whether a module reads fields of an experiment by a name such as `run.experiment`; not of a run's file."""
    values = [node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    # Only these are written out, which takes far longer than to look at a name.
    named = [each for each in values if getattr(each, "id", getattr(each, "attr", "")) in ("experiment", "_experiment")]
    return any("directory" not in ast.unparse(each) for each in named)


def test_modules_take_the_parts_of_an_experiment_that_they_read():
    # To look at all trees takes long.
    texts = {path: path.read_text() for path in LIBRARY}
    taking = {path for path, text in texts.items() if "Experiment" in text and takes_experiment(parsed(path))}
    reading = {path for path, text in texts.items() if "experiment." in text and reads_experiment(parsed(path))}
    taking, reading = len(taking), len(taking | reading)
    assert taking <= TAKING_AN_EXPERIMENT, "take a part of the experiment, see launch/experiments/parts"
    assert reading <= READING_AN_EXPERIMENT, "give functions a part of the experiment, see launch/experiments/parts"
    assert (taking, reading) == (TAKING_AN_EXPERIMENT, READING_AN_EXPERIMENT), "fewer do so now: lower the numbers"


def test_a_module_that_takes_or_reads_an_experiment_is_found():
    assert takes_experiment(ast.parse("def check(given: Experiment | None): ..."))
    assert not takes_experiment(ast.parse("def check(limits: LimitsPart): limits.max_steps"))
    assert reads_experiment(ast.parse("self._experiment.seed, run.experiment.seed"))
    assert not reads_experiment(ast.parse("directory.experiment.exists()"))


SEVERAL_HOMES = {
    "EnvConfig": "also of workers under other interpreters, which import nothing else; factories get it by this name",
    "compare evaluate": "public functions beside those that they call",
    "main": "of commands and processes",
    "run": "of launchers",
    "Episode": "also the client's, which is one file alone",
    "expected_value": "of losses, each beside the paper's own symbols",
}
"""Names of classes and functions that several modules define, and why.  The table may only shrink."""


def test_a_name_has_one_home():
    homes = collections.Counter(
        node.name
        for path in LIBRARY
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
    )
    assert {name for name, count in homes.items() if count > 1} == {
        name for names in SEVERAL_HOMES for name in names.split()
    }


def test_modules_are_short_and_well_named():
    for path in LIBRARY + BENCHMARKS:
        assert len(path.read_text().splitlines()) <= 500, path
        assert path.stem not in VAGUE, path


SMALL = {
    "agents.losses.conservative_q_learning": "a loss of its paper, tested against a NumPy loop",
    "agents.losses.discrete_soft_actor_critic": "a loss of its paper, tested against a NumPy loop",
    "agents.losses.implicit_q_learning": "a loss of its paper, tested against a NumPy loop",
    "environments.batches.seeding": "imported by the package, for its users",
    "launch.launchers.node_processes.malloc_arenas": "benchmarks and tests load it alone, without libraries",
    "launch.launchers.supervision.turn_watch": "a thread and a clock, tested without a launcher",
    "launch.nodes.episodes.episode_sender": "the other end of the recorder node, beside it",
    "launch.nodes.launchpad_process": "the first import of a process that has nothing else yet",
    "launch.nodes.learning.peer_watch": "a thread, tested in a process of its own; the learner is long",
    "launch.processes.exit_calls": "of the process, not of the session, which is nearly 500 lines",
    "networks.heads.moved_atoms": "numbers of a distribution, with no learning in them",
    "networks.torsos.augmentation": "beside the other layers of pictures; the algorithm is read without it",
    "replay.servers.server": "imported by the package, for its users",
    "studies.datasets.dataset_info": "a public function of `callboard`",
    "studies.tuning.optuna_sampler": "imports a library that need not be installed",
}
"""Modules of under 60 lines that a single module imports, and why they do not join it."""


def test_a_small_module_with_one_importer_joins_it():
    modules = {name_of(path): path for path in LIBRARY if path.name != "setup.py"}
    importers = collections.Counter(
        name for importer, path in modules.items() for name in modules_imported(path, modules.keys())
    )
    assert {
        name.removeprefix("callboard.")
        for name, path in modules.items()
        if importers[name] == 1 and path.name != "__init__.py" and len(path.read_text().splitlines()) < 60
    } == SMALL.keys(), "join it to the module that imports it, or write here why not"


def test_the_library_grows_only_on_purpose():
    modules, lines, _ = code_size()
    assert modules.total() == len(LIBRARY)
    assert modules.total() <= LIBRARY_MODULES, "join modules that are one concept, or raise the number"
    assert lines.total() <= LIBRARY_LINES, "remove what is not needed any more, or raise the number"


def test_no_module_of_the_root_hides_one_of_the_standard_library():
    for path in ROOT.glob("*.py"):
        assert path.stem not in sys.stdlib_module_names


def test_only_the_command_prints():
    for path in LIBRARY:
        if path.is_relative_to(ROOT / "cli"):
            continue
        for node in nodes_of(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                assert any(ast.unparse(keyword) == "file=sys.stderr" for keyword in node.keywords), path


def test_tests_are_no_package():
    assert not list((ROOT / "tests").rglob("__init__.py"))


def _message_of(raised):
    """The first argument of a raised error as text, with `{}` for each value in it; empty if it is no text."""
    argument = raised.exc.args[0] if isinstance(raised.exc, ast.Call) and raised.exc.args else None
    parts = argument.values if isinstance(argument, ast.JoinedStr) else [argument]
    texts = [part.value if isinstance(part, ast.Constant) else "{}" for part in parts]
    return "".join(text for text in texts if isinstance(text, str))


def test_messages_of_errors_are_no_sentences():
    """They follow `callboard: ` on one line: they begin in lower case or with a name, and end without a period."""
    names = ("TensorFlow ", "Ray ", "Q-learning ", "No module named ")
    raised = [(path, node) for path in LIBRARY for node in nodes_of(path) if isinstance(node, ast.Raise)]
    messages = {(path.name, node.lineno): _message_of(node) for path, node in raised}
    assert len([message for message in messages.values() if message]) > 300
    wrong = {
        place: message
        for place, message in messages.items()
        if message[:1].isupper() and not message.startswith(names) or re.search(r"[^.]\.\s*$", message)
    }
    assert not wrong


MOST_FIELDS, MOST_METHODS = 20, 25


def _size_of(definition):
    """The number of a class's own fields, which are annotated or assigned to `self`, and of its methods."""
    methods = [item for item in definition.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
    declared = [item for item in definition.body if isinstance(item, ast.AnnAssign)]
    assigned = [node for method in methods for node in ast.walk(method) if isinstance(node, ast.Attribute)]
    fields = {ast.unparse(item.target) for item in declared if not ast.unparse(item.annotation).startswith("ClassVar")}
    fields |= {
        node.attr for node in assigned if isinstance(node.ctx, ast.Store) and getattr(node.value, "id", "") == "self"
    }
    return len(fields), len(methods)


def test_classes_are_small():
    sizes = {
        f"{path.relative_to(ROOT)}:{node.name}": _size_of(node)
        for path in LIBRARY
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef)
    }
    large = {name: size for name, size in sizes.items() if size[0] > MOST_FIELDS or size[1] > MOST_METHODS}
    assert not large, "split the class"
