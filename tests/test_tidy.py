"""Style as a test: sizes, names, banned calls, docs that name real commands, requirements that have a test.

The layers are import-linter's work: `python3 dev.py quick`.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import subprocess
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import acode
from acode.cli.app import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "acode"
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600
THIN_MODULE_LINES = 25
REQUIREMENTS_PER_TEST_MAX = 5
REQUIREMENTS_TESTED_MIN = 434  # raise it when more are tested; it never goes down

PURE = ("events", "redact", "state", "resume", "policy", "plan")
VAGUE = ("utils", "helpers", "common", "manager", "service", "handler", "base", "impl")
ARCHIVES = (".db", ".png", ".gz", ".zip", ".bin", ".gif", ".svg")


def python_files(*places: Path) -> list[Path]:
    found = [place for place in places if place.is_file()]
    for place in places:
        found += [path for path in sorted(place.rglob("*.py")) if not path.is_relative_to(ROOT / "tests" / "golden")]
    return found


OURS = python_files(SOURCE, ROOT / "tests", ROOT / "benchmarks", ROOT / "examples", ROOT / "dev.py")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """Parsed by the first test that asks: whoever only collects the tests does not wait for it."""
    return ast.parse(path.read_text(encoding="utf-8"))


def where(path: Path, node: ast.stmt | ast.expr) -> str:
    return f"{path.relative_to(ROOT)}:{node.lineno}"


def lines_without_docstring(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None and first.end_lineno is not None:
        lines -= first.end_lineno - first.lineno + 1
    return lines


def called(node: ast.Call) -> str:
    """What stands before the parenthesis: `datetime.now`, `print`; empty where that is no plain name."""
    names, function = [], node.func
    while isinstance(function, ast.Attribute):
        names.append(function.attr)
        function = function.value
    return ".".join([function.id, *reversed(names)]) if isinstance(function, ast.Name) else ""


@pytest.fixture(scope="module", autouse=True)
def forget_trees() -> Iterator[None]:
    """They are larger than all else that a worker holds, and every process that a later test forks would copy them."""
    yield
    tree_of.cache_clear()
    nodes_of.cache_clear()


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """What the tests below ask about, found in one walk for all of them."""
    asked = (ast.Call, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    return tuple(node for node in ast.walk(tree_of(path)) if isinstance(node, asked))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in nodes_of(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def calls(path: Path) -> Iterator[ast.Call]:
    return (node for node in nodes_of(path) if isinstance(node, ast.Call))


def imported(path: Path) -> Iterator[tuple[ast.stmt, str]]:
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node, node.module


def tracked_files() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=False, text=True, stdout=subprocess.PIPE).stdout
    found = [ROOT / name for name in listing.split("\0") if name]
    return [path for path in found if path.is_file() and path.suffix not in ARCHIVES] or OURS


def test_no_function_and_no_file_has_taken_a_second_job() -> None:
    too_long = [
        f"{where(path, function)} {function.name}: {lines_without_docstring(function)} lines"
        for path in OURS
        for function in functions(path)
        if lines_without_docstring(function) > FUNCTION_LINES_MAX
    ]
    for path in OURS:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > FILE_LINES_MAX:
            too_long.append(f"{path.relative_to(ROOT)}: {lines} lines")
    assert too_long == []


def test_nothing_is_named_after_nothing() -> None:
    vague = [str(path.relative_to(ROOT)) for path in OURS if set(path.stem.split("_")) & set(VAGUE)]
    vague += [str(path.relative_to(ROOT)) for path in SOURCE.rglob("*") if path.is_dir() and path.name in VAGUE]
    suffixes = tuple(word.capitalize() for word in VAGUE)
    for path in OURS:
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef) and node.name.endswith(suffixes):
                vague.append(f"{where(path, node)} {node.name}")
    assert vague == []


def test_every_module_says_what_it_is_for() -> None:
    assert [str(path.relative_to(ROOT)) for path in python_files(SOURCE) if not ast.get_docstring(tree_of(path))] == []


@pytest.mark.parametrize(
    ("banned", "reason"),
    [
        (r"re\.match", "it accepts a trailing newline before $: use re.fullmatch"),
        (r"eval|exec", "text is never code"),
        (r"pickle\.\w+", "reading it executes what it says"),
        (r"os\.(system|popen)", "a command is a list of arguments"),
    ],
)
def test_dangerous_calls_are_not_made(banned: str, reason: str) -> None:
    found = [where(path, call) for path in OURS for call in calls(path) if re.fullmatch(banned, called(call))]
    assert found == [], reason


def test_no_command_goes_through_a_shell_by_a_flag() -> None:
    def through_shell(call: ast.Call) -> bool:
        return any(word.arg == "shell" and ast.unparse(word.value) != "False" for word in call.keywords)

    assert [where(path, call) for path in OURS for call in calls(path) if through_shell(call)] == []


def test_pickle_is_imported_nowhere() -> None:
    found = [where(path, node) for path in OURS for node, name in imported(path) if name.split(".")[0] == "pickle"]
    assert found == []


def test_only_the_command_line_prints_and_asks() -> None:
    quiet = [path for path in python_files(SOURCE) if path.relative_to(SOURCE).parts[0] not in ("cli", "cli.py")]
    banned = r"print|input|sys\.exit|click\.(echo|prompt|confirm)"
    assert [where(path, call) for path in quiet for call in calls(path) if re.fullmatch(banned, called(call))] == []


def test_pure_modules_never_ask_what_time_it_is() -> None:
    pure = [path for name in PURE for path in python_files(SOURCE / f"{name}.py", SOURCE / name)]
    banned = r"(datetime\.)*(now|utcnow|today)|time\.\w+|datetime\.datetime\.(now|utcnow|today)|open|(uuid\w*\.)?uuid\d"
    assert [where(path, call) for path in pure for call in calls(path) if re.fullmatch(banned, called(call))] == []


def test_the_repository_names_no_machine() -> None:
    machine = re.compile(r"(?<![\w.}])/(?:root|work|opt|srv|home/(?!user/|you/)\w+|Users/(?!you/)\w+)/")
    found = []
    for path in tracked_files():
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if machine.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert found == []


def test_the_lock_file_names_only_the_public_index() -> None:
    urls = re.findall(r'"(https?://[^/"]+)', (ROOT / "uv.lock").read_text(encoding="utf-8"))
    assert set(urls) == {"https://pypi.org", "https://files.pythonhosted.org"}


def test_every_hint_installs_this_project_and_not_the_one_that_has_its_short_name_on_the_index() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    hints, wrong = re.compile(r"""(?:pipx?|uv tool|uvx) install (?:-\S+ )*["']?(acode[\w-]*)(?:\[([\w,-]+)\])?"""), []
    for path in tracked_files():
        for name, extras in hints.findall(path.read_text(encoding="utf-8", errors="replace")):
            unknown = {extra for extra in extras.split(",") if extra} - set(project["optional-dependencies"])
            if name != project["name"] or unknown:
                wrong.append(f"{path.relative_to(ROOT)}: {name}[{extras}]")
    assert wrong == []


def test_the_lock_file_belongs_to_this_project_file() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    wanted = {re.split(r"[\[>=<;! ]", line)[0].replace(".", "-") for line in lines} - {project["name"]}
    lock = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
    (own,) = [package for package in lock["package"] if package["name"] == project["name"]]
    locked = {line["name"] for line in own["metadata"]["requires-dist"]} - {project["name"]}
    assert locked == wanted, "run: uv lock"


def test_the_package_its_project_file_lock_file_and_changelog_agree_on_the_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert acode.__version__ == project["version"] == (cited and cited[1])
    locked = re.search(
        rf'^name = "{project["name"]}"\nversion = "(.+)"$', (ROOT / "uv.lock").read_text("utf-8"), re.MULTILINE
    )
    assert locked is not None and locked[1] == project["version"]
    told = re.search(r"^## (\S+) \((.+)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert told is not None and (told[2] == "unreleased" or told[1] == project["version"])


# Hints.

TYPED = re.compile(rf"\bacode (?:-|(?:{'|'.join(COMMANDS)})\b)")


def literals(expression: ast.expr) -> Iterator[str]:
    """Its texts, with … for a value in an f-string; the words of an action are those of a command."""
    waiting: list[ast.AST] = [expression]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else "…" for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        else:
            waiting.extend(ast.iter_child_nodes(node))


def said_texts(tree: ast.Module) -> Iterator[str]:
    """All its texts but those that only a reader of the source sees."""
    nodes = list(ast.walk(tree))
    unsaid = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    unsaid |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if id(node) not in unsaid and isinstance(node, ast.JoinedStr | ast.Constant):
            yield from literals(node)


def commands_said(tree: ast.Module) -> list[str]:
    return [text for text in said_texts(tree) if TYPED.search(text)]


# Texts that tell nobody what to do next.
NO_HINTS = {
    "observed/setup/opencode.py": "a comment in the plugin that acode writes",
    "sync/postgres.py": "the name of its connections on the server",
}


def test_whatever_is_said_outside_the_command_line_names_an_action_and_no_command() -> None:
    """A command that stands in a text is shown to a program too, which cannot type it; and a model that passes it on
    to its user would be right only by chance.

    The modules of the command line are exempt: they speak to a person at a terminal, and to nobody else.
    """
    asked = [path for path in python_files(SOURCE) if path.relative_to(SOURCE).parts[0] not in ("cli", "hints.py")]
    found = {path.relative_to(SOURCE).as_posix(): commands_said(tree_of(path)) for path in asked}
    assert {path: texts for path, texts in found.items() if texts and path not in NO_HINTS} == {}
    assert [path for path in NO_HINTS if len(found[path]) != 1] == []


@pytest.mark.parametrize(
    "source",
    [
        'raise Usage("no", hint="Look: acode status")',
        'raise Usage("no", hint=found or f"Then: acode resume {name}")',
        'class Lost(AcodeError):\n    default_hint = "See acode --help."',
        'WAIT_HINT: Final = "Wait: acode session list"',
        'error.give_hint("Look: acode explain")',
        'hint = session_hint(session, f"{there}: acode key rotate, then {{}}", Resume())',
        'kept.append(f"{events} not in the shared copy (acode sync now)")',
        'el("code", "acode worker", class_="command")',
    ],
)
def test_a_command_that_is_said_is_found(source: str) -> None:
    assert len(commands_said(ast.parse(source))) == 1


def test_only_the_error_itself_renders_its_hint() -> None:
    """Text that is assigned in the place of a hint would be the same for a person and for a program."""
    assigned = [
        where(path, node)
        for path in python_files(SOURCE)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Assign | ast.AugAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Attribute) and target.attr == "hint" and path != SOURCE / "errors" / "root.py"
    ]
    assert assigned == []


# Requirements.


def markers() -> Iterator[tuple[str, list[str]]]:
    """Every `pytest.mark.req(...)` with its place and the ids it names."""
    for path in python_files(ROOT / "tests"):
        for call in calls(path):
            if called(call) in ("pytest.mark.req", "mark.req"):
                yield where(path, call), [ast.literal_eval(argument) for argument in call.args]


def known_requirements() -> set[str]:
    return set((ROOT / "tests" / "requirements.txt").read_text(encoding="utf-8").split())


def test_a_marker_names_few_and_known_requirements() -> None:
    known = known_requirements()
    wrong = [f"{place}: {id_} is no requirement" for place, ids in markers() for id_ in ids if id_ not in known]
    wrong += [f"{place}: {len(ids)} ids" for place, ids in markers() if not 1 <= len(ids) <= REQUIREMENTS_PER_TEST_MAX]
    assert wrong == []


def test_no_requirement_loses_its_test() -> None:
    tested = {id_ for _, ids in markers() for id_ in ids}
    assert len(tested) >= REQUIREMENTS_TESTED_MIN


def own_statements(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """What stands in the function itself, without the functions and classes inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))


def test_no_test_of_a_requirement_ends_early() -> None:
    """A test that returns in its middle claims its requirements also where it has checked nothing of them."""
    early = [
        f"{where(path, function)} {function.name}"
        for path in OURS
        for function in functions(path)
        if any(isinstance(one, ast.Call) and called(one).endswith("mark.req") for one in function.decorator_list)
        and any(isinstance(node, ast.Return) for node in own_statements(function))
    ]
    assert early == []


def claims(paths: Iterable[Path]) -> dict[str, set[str]]:
    """Every test of these files by its file and name, with the requirements that its own markers name."""
    found: dict[str, set[str]] = {}
    for path in paths:
        for function in functions(path):
            marks = [
                one for one in function.decorator_list if isinstance(one, ast.Call) and called(one).endswith("mark.req")
            ]
            ids = {str(ast.literal_eval(argument)) for mark in marks for argument in mark.args}
            found[f"{path.relative_to(ROOT).as_posix()}::{function.name}"] = ids
    return found


def named() -> dict[str, list[str]]:
    """By its name in the requirements: the test, and the requirements that it must claim."""
    lines = (ROOT / "tests" / "named_tests.txt").read_text(encoding="utf-8").splitlines()
    words = [line.split() for line in lines]
    assert len({first for first, *_ in words}) == len(words)
    return {first: rest for first, *rest in words}


@pytest.mark.req("TEST-040b-01", "TEST-040b-02", "TEST-011c-01")
@pytest.mark.parametrize(
    ("asked", "count"),
    [("UT-040b-", 15), ("IT-040b-", 15), ("011c-unit-", 17), ("011c-integration-", 9), ("011c-end-to-end-", 3)],
)
def test_each_test_that_was_asked_for_by_name_is_there(asked: str, count: int) -> None:
    mapped = {id_: words for id_, words in named().items() if id_.startswith(asked)}
    assert len(mapped) == count
    if "040b" in asked:
        assert set(mapped) == {f"{asked}{number:02d}" for number in range(1, count + 1)}
    files = {ROOT / test.partition("::")[0] for test, *_ in mapped.values()}
    there = claims(path for path in files if path.is_file())
    assert [(id_, test) for id_, (test, *_) in mapped.items() if test not in there] == []
    assert [(id_, test) for id_, (test, *wanted) in mapped.items() if not set(wanted) <= there[test]] == []


# Documents.


def documents() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_in_the_documents_leads_to_a_file_of_the_project(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    targets = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    found = {target: (document.parent / target).resolve() for target in targets if target}
    assert [target for target, path in found.items() if not (path.exists() and path.is_relative_to(ROOT))] == []


def test_every_place_that_contributors_are_sent_to_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:src|tests|docs|benchmarks)/[^`<\s]*)`", text)
    assert len(named) > 20
    assert [place for place in named if not (ROOT / place).exists()] == []


def test_every_page_of_the_site_is_a_file() -> None:
    pages = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(pages) > 10
    assert [page for page in pages if not (ROOT / "docs" / page).exists()] == []


def imported_at_start(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of acode that a module loads when it is loaded; neither lazy imports nor those for types alone."""
    found: set[str] = set()
    for node in tree_of(path).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & known.keys() or {node.module}
    return found & known.keys()


def test_no_modules_import_each_other_in_a_circle() -> None:
    modules = {path: path.relative_to(SOURCE.parent).with_suffix("") for path in python_files(SOURCE)}
    known = {".".join(name.parts).removesuffix(".__init__"): path for path, name in modules.items()}
    graph = {name: imported_at_start(path, known) - {name} for name, path in known.items()}
    assert sum(map(len, graph.values())) > len(graph)
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, with the circle


def test_no_module_of_the_engine_or_the_library_only_forwards_or_holds_one_short_function() -> None:
    thin = []
    for path in [*python_files(SOURCE / "engine"), *python_files(SOURCE / "library")]:
        held = [node for node in tree_of(path).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        held += [node for node in tree_of(path).body if isinstance(node, ast.AsyncFunctionDef)]
        if path.name != "__init__.py" and len(held) <= 1:
            lines = sum((node.end_lineno or 0) - node.lineno + 1 for node in held)
            thin += [f"{path.relative_to(ROOT)}: {lines} lines"] * (lines < THIN_MODULE_LINES)
    assert thin == []
