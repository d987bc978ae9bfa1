"""What the pages tell people to type, parsed by what will read it.

Wrong if a page names a command, an option, a configuration, a key or an option of a group that is not there; if a page
links to a file that is not there; if a Python or YAML block does not parse.
"""

import ast
import re
import shlex
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from reasoner.config.compose import load
from reasoner.config.kinds import section_of
from reasoner.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN = {"NAME", "RUN", "FILE.jsonl", "MODEL", "DIR", "…", "[key=value", "…]", "...", "STAGE"}
"""Words of a form (`reasoner run NAME [key=value …]`), not of a command to type."""
CONFIGURED = {"run", "plan"}


def commands() -> Any:
    """The real command line as click sees it."""
    import typer

    from flows.cli import add_commands, app

    if "train" not in {c.name for c in app.registered_commands}:
        add_commands()
    return typer.main.get_command(app)


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, text) of a page's code blocks: fenced ones, and indented ones as `sh`."""
    text = page.read_text(encoding="utf-8")
    fenced = [
        (m[1] or "sh", m[2]) for m in re.finditer(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    ]
    rest = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    indented = re.findall(r"(?:^    .*\n)+", rest + "\n", re.MULTILINE)
    return [*fenced, *[("sh", textwrap.dedent(block)) for block in indented]]


def typed(page: Path) -> list[str]:
    """Every `reasoner …` line of a page's blocks, continued lines joined."""
    found = []
    for language, text in blocks(page):
        if language not in ("sh", "bash", "console", ""):
            continue
        for line in text.replace("\\\n", " ").splitlines():
            match = re.match(r"(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\S*/bin/)?reasoner (?=[a-z-])(.*)", line.strip())
            if match:
                # Two spaces begin what the page says of the command.
                found.append(re.split(r"\s{2,}", match[1])[0].strip())
    return found


LINES = [pytest.param(line, id=f"{page.name}: {line[:60]}") for page in PAGES for line in typed(page)]


@pytest.fixture(scope="module")
def line_reader() -> Any:
    return commands()


def check(line: str, reader: Any) -> None:
    """Parse one line with the real parser. AssertionError says what the command line would not take."""
    words = [w for w in shlex.split(line, comments=True) if w not in ("|", "2>&1")]
    assert words[0] in reader.commands, f"no command {words[0]!r}"
    if SHOWN & set(words) or any(w.startswith("[") and w != "[]" and "=" not in w for w in words):
        return
    command = reader.commands[words[0]]
    try:
        given = command.make_context(words[0], list(words[1:]), resilient_parsing=False).params
    except Exception as error:  # typer brings a click of its own; both tell usage errors by this method
        if not hasattr(error, "format_message"):
            raise
        raise AssertionError(error.format_message()) from None
    if words[0] in CONFIGURED and not given.get("actual"):
        named = [w for w in given.get("overrides") or () if not w.endswith("…")]
        quoted = [re.sub(r"\$[A-Z_]+", "x.yaml", w) for w in named]
        load_checked(given["name"], quoted)


def load_checked(name: str, overrides: list[str]) -> None:
    """A configuration as the page has it; strategies of the page's own file are left out, they need its variable."""
    kept = [w for w in overrides if "table" not in w]
    try:
        load(name, kept, section_of(name))
    except ConfigurationError as error:
        raise AssertionError(str(error)) from None


@pytest.mark.parametrize("line", LINES)
def test_a_line_to_type_is_taken_by_the_command_line(line: str, line_reader: Any) -> None:
    check(line, line_reader)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("rum smart-demo", "no command 'rum'"),
        ("run smart-dmo", "Did you mean 'smart-demo'"),
        ("run smart-demo train.lrr=1", "Did you mean 'train.lr'"),
        ("run smart-demo data=gsm9k", "no option 'gsm9k'"),
        ("run smart-demo --rmote", "rmote"),
        ("plan smart-demo --price cheap", "valid number"),
    ],
)
def test_the_check_would_see_a_wrong_line(line: str, words: str, line_reader: Any) -> None:
    with pytest.raises(AssertionError, match=re.escape(words)):
        check(line, line_reader)


def test_there_are_lines_to_check() -> None:
    assert len(LINES) >= 15 and {"README.md", "extending.md"} <= {p.id.split(":")[0] for p in LINES}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_and_yaml_blocks_parse(page: Path) -> None:
    for language, text in blocks(page):
        if language == "python":
            ast.parse(text)
        elif language in ("yaml", "json"):
            yaml.safe_load(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_and_named_files_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text)]
    gone = [k for k in links if k and not k.startswith(("http", "mailto")) and not (page.parent / k).exists()]
    assert not gone
    if page.name == "CONTRIBUTING.md":
        named = re.findall(r"`((?:reasoner|flows|tasks|configs|tests|docs|benchmarks)/[\w./-]+)`", text)
        assert len(named) > 20 and not [n for n in named if not (ROOT / n).exists()]
