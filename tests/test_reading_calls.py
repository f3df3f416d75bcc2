"""Every call of a library that reads a path or bytes which may come from others is in the table of docs/security.md."""

import ast
import pathlib
import re

from code_size import PACKAGES

ROOT = pathlib.Path(__file__).parents[1]
READERS = re.compile(
    r"(?:^|\.)(?:"
    r"(?:cloudpickle|pickle|marshal|dill|joblib|shelve|json|tomllib|tomli|msgpack)\.(?:loads?|open|Unpickler|JSONDecoder)"
    r"|(?:np|numpy)\.(?:load|memmap|fromfile|loadtxt|genfromtxt|fromregex)"
    r"|(?:pd|pandas)\.read_\w+|torch\.load"
    r"|yaml\.(?:\w*load\w*|parse|scan|compose\w*)"
    r"|(?:zipfile|tarfile|gzip|bz2|lzma)\.\w+|zlib\.decompress\w*"
    r"|h5py\.File|deserialize_space|MinariDataset|minari\.load_dataset|combine_datasets"
    r"|imageio\.\w+|Image\.open"
    r"|train\.(?:load_checkpoint|load_variable|list_variables)|Checkpoint\(.*\)\.(?:read|restore)"
    r"|saved_model\.load|load_model|\w+\.load_weights|TFRecordDataset|io\.(?:parse|read|decode)_\w+"
    r"|FromString|ParseFromString|import_graph_def"
    r"|Tuner\.restore|DefaultCheckpointer"
    r"|ElementTree\.\w+|(?:literal_)?eval|exec"
    r")$"
)
ROW = re.compile(r"^\| `([\w/]+\.py)` \| (`.+?`) \| .+ \| .+ \|$", re.MULTILINE)


def reading_calls(source):
    """The calls in a module that read, as they are written there, without arguments."""
    names = (ast.unparse(node.func) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return {re.sub(r"\(.*\)", "()", name) for name in names if READERS.search(name)}


def calls_of_the_library():
    paths = [*ROOT.glob("*.py"), *(path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py"))]
    return {(str(path.relative_to(ROOT)), name) for path in paths for name in reading_calls(path.read_text())}


def calls_of_the_page():
    page = (ROOT / "docs" / "security.md").read_text()
    table = page.split("## What reads files and bytes")[1].split("\n## ")[0]
    return {(module, name) for module, names in ROW.findall(table) for name in re.findall(r"`(.+?)`", names)}


def test_readers_are_found_as_they_are_written():
    source = "import a\na.pickle.loads(x)\ntf.train.Checkpoint(**y).read(z)\njson.dumps(q)\nself.load(r)\neval('1')"
    assert reading_calls(source) == {"a.pickle.loads", "tf.train.Checkpoint().read", "eval"}


def test_every_call_that_reads_is_in_the_table_and_nothing_else():
    found, named = calls_of_the_library(), calls_of_the_page()
    assert not found - named, "say in docs/security.md what guards it"
    assert not named - found, "it is no longer there"
