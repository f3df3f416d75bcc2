"""Commands that the README, the pages and the examples show: blocks, texts between backquotes, and docstrings."""

import pathlib
import re
import shlex
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted(
    path for path in (ROOT / "examples").rglob("*") if path.suffix not in (".ipynb", ".pyc") and path.is_file()
)
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
SHELL = ("", "bash", "sh", "shell", "console")
"""Languages of blocks that contain commands."""
PROGRAMS = (
    "bash|callboard|callboard-bench|conda|curl|docker|export|git|kubectl|make|nft|nvidia-smi|pip|pip3|pipx|pre-commit|"
    r"py-spy|pytest|python3?|ray|sbatch|source|srun|ssh|sudo|tensorboard|tmux|ufw|uv|wget|\.venv/bin/\S+|"
    r"benchmarks/\S+"
)
COMMAND = re.compile(rf"(?:\w+=\S+ )*(?:{PROGRAMS})(?: .*)?$", re.DOTALL)
NAMED = ("callboard", "callboard-bench", "docker", "pip", "python", "ray", "ssh")
"""Programs whose subcommands sentences refer to, without arguments."""
ALONE = ("doctor", "ls", "--version")
"""Those that need none."""
PLACEHOLDERS = {
    "AGENT": "ppo",
    "COMMAND": "train",
    "DIR": "policy",
    "ENV": "CartPole-v1",
    "FIRST:6379": "10.0.0.2:6379",
    "GOAL": "475",
    "LIMIT": "100000",
    "PATH": "runs/x",
    "RECIPE": "ppo-cartpole",
    "RUN": "runs/x",
    "RUN@latest": "runs/x@latest",
    "RUN...": "runs/x",
    "SEED": "1",
    "check FILE": "cluster.yaml",
    "study FILE": "ppo-cartpole",
    "--env NAME": "CartPole-v1",
    "--env-python PATH": sys.executable,
    "--episode N": "0",
    "--host NAME": "cpu-0",
    "--metric NAME": "actor/episode_return",
    "--recipe NAME": "ppo-cartpole",
}
"""Values in the place of words in capitals, some of which mean something else after another word."""
EXECUTED_PAGES = (
    "README.md",
    "docs/quickstart.md",
    "docs/coming_from.md",
    *(
        f"docs/guides/{path.name}"
        for path in sorted((ROOT / "docs/guides").glob("*.md"))
        # The commands of one are servers and their clients; a test of its own runs the other.
        if path.name not in ("external_simulators.md", "own_loop.md")
    ),
)
"""Pages whose `callboard` commands in blocks are run from top to bottom, see `test_snippets.py`."""


class DocumentedCommand(NamedTuple):
    """A command on a page.

    Attributes:
      page: path of the page in the repository.
      text: the command in one line, without a comment.
      is_in_block: whether it stands in a block; otherwise it stands within a sentence.
    """

    page: str
    text: str
    is_in_block: bool

    def __str__(self):
        return f"{self.page}: {self.text}"[:90]

    @property
    def words(self):
        """The command's words without environment variables, with values in the place of placeholders."""
        words = shlex.split(self.text)
        while re.match(r"\w+=", words[0]):
            words.pop(0)
        pairs = zip(["", *words], words, strict=False)
        return [PLACEHOLDERS.get(f"{before} {word}", PLACEHOLDERS.get(word, word)) for before, word in pairs]

    @property
    def is_whole(self):
        """Whether it can be run as it stands: a sentence may also name a command, or a part of one."""
        words = self.words
        if "..." in words or any("[-" in word for word in words):
            return False
        if self.is_in_block or words[0] not in NAMED or words[1] in ALONE or "--help" in words:
            return True
        if words[:2] == ["callboard", "train"]:
            return bool({"--env", "--recipe", "--resume"} & set(words))
        if words[0] == "callboard" and words[1] != "tune":
            return len(words) > 2 and words[-1] != "check" and not words[2].startswith("--")
        return len(words) > 2


def documented_commands():
    """Returns all commands, each once per page."""
    found = []
    for path in PAGES:
        name, text = str(path.relative_to(ROOT)), path.read_text()
        for language, block in BLOCK.findall(text):
            if language in SHELL:
                found += [DocumentedCommand(name, line, True) for line in command_lines(block)]
        for inline in re.findall(r"`([^`]+)`", BLOCK.sub("", text)):
            line = " ".join(inline.split())
            if COMMAND.match(line) and " " in line:
                found.append(DocumentedCommand(name, line, False))
    for path in EXAMPLES:
        name, text = str(path.relative_to(ROOT)), path.read_text()
        if path.suffix == ".py":
            lines = command_lines(text.split('"""')[1])
        else:
            lines = [
                re.split(" {3,}", line)[0] for line in re.findall(r"^# +((?:docker|kubectl|sbatch) .*)", text, re.M)
            ]
        found += [DocumentedCommand(name, line, True) for line in lines]
    return list(dict.fromkeys(found))


def command_lines(block):
    """Returns the commands of a block: lines that begin with a program, with the lines that continue them."""
    lines = [line.strip().removeprefix("$ ") for line in re.sub(r"\\\n\s*", "", block).splitlines()]
    return [re.split(r"\s+#\s", line)[0].rstrip() for line in lines if COMMAND.match(line)]
