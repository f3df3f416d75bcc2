"""The words of code, tests and pages: the field's terms, in American spelling; CHANGELOG.md may name old ones."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]
DIRECTORIES = sorted(path.parent for path in ROOT.glob("*/__init__.py") if not path.parent.is_symlink())
DIRECTORIES += [ROOT / name for name in ("tests", "docs", "examples")]
FILES = [path for name in ("*.py", "*.md", "*.toml", "*.yaml", "Makefile", ".ci/*") for path in ROOT.glob(name)]
FILES += [path for directory in DIRECTORIES for path in directory.rglob("*") if path.is_file()]
TEXTS = [
    path
    for path in FILES
    if path.suffix in (".py", ".md", ".yaml", ".toml", ".txt", ".sh", ".sbatch", "")
    and path.name not in ("CHANGELOG.md", "test_language.py", "test_public_names.py", "names_of_0_2.txt")
    and "venvs" not in path.parts
]
STEMS = (
    "central|discret|emphas|final|general|initial|local|maxim|minim|normal|optim|organ|parallel|penal|priorit|random|"
    "recogn|regular|serial|special|standard|summar|synchron|util|vector|visual"
)
INSTEAD = {
    r"ticks?|ticking": "timestep",
    r"counts t": "valid_t",
    r"mend|mends|mended|mending": "fix",
    r"drawn": "sampled",
    r"nobody|whoever": "a subject that can act: no node, any process, the caller",
    r"(life|lives|lifetime) of": "incarnation of",
    r"go on|goes on|going on|went on": "continue",
    r"node polic(y|ies)(?! = node rules)": "node rules: a policy is what acts",
    r"frozen polic(y|ies)(?! = trained policy)": "fixed: weights are frozen",
    r"(acting|evaluation|evaluator|learner|process|saved) setup": "what it contains, or prepared",
    r"(?<!nodes before = .)local part(?! = local nodes)": "local nodes: a part is of a nest or of a network",
    r"part size|run\.parts|ray parts": "element, policy run, nodes: a part is of a nest or of a network",
    r"duell\w*": "dueling",
    r"learnt|burnt|spelt": "learned",
    rf"({STEMS})is(e|es|ed|er|ers|ing|ation|ations|able)": "-ize",
    r"(behavi|col|fav|hon|neighb|flav|harb|vap)our\w*": "-or",
    r"analyse[sd]?|analysing|centred?|centres|metres?|grey\w*|travell\w*|labell\w*|modell\w*": "American spelling",
}
NOUN_CLAUSE = '"""What '
BANNED = re.compile(rf"\b(?:{'|'.join(INSTEAD)})\b")


def words_of(text):
    """A text with its identifiers taken apart: `prioritiesDrawn` and `priorities_drawn` are two words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).replace("_", " ").lower()


def test_words():
    found = []
    for path in TEXTS:
        words = words_of(path.read_text())
        for match in BANNED.finditer(words):
            line = words.count("\n", 0, match.start()) + 1
            instead = next(word for banned, word in INSTEAD.items() if re.fullmatch(banned, match[0]))
            found.append(f"{path.relative_to(ROOT)}:{line}: {match[0]!r}; write {instead}")
    assert not found, "\n".join(found)


def test_words_inside_identifiers_are_found():
    assert BANNED.search(words_of("counts_t = drawItems()")) and BANNED.search(words_of("TICKS_PER_ROW"))
    assert BANNED.search(words_of("class FrozenPolicy")) and BANNED.search(words_of("for one in run.parts"))
    assert BANNED.search(words_of("import evaluation_setup")) and BANNED.search(words_of("NodePolicy(restarts=1)"))
    assert not BANNED.search(words_of("prioritized, learned and sampled: the message says what its task is"))


def test_docstrings_name_their_subject():
    """A noun clause, such as "What a node needs", has to be read twice; "Arguments of a node" has not."""
    modules = [
        path
        for path in TEXTS
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] not in ("tests", "benchmarks")
    ]
    found = [str(path.relative_to(ROOT)) for path in modules if NOUN_CLAUSE in path.read_text()]
    assert not found, "\n".join(found)
