"""The size of the source by package, and functions chosen at random, to be placed by their module's name.

python -m tests.source_census sizes [COMMIT]       lines by package, now or at a commit
python -m tests.source_census functions SEED [N]   N functions (25), each with its module and its first sentence
"""

from __future__ import annotations

import ast
import io
import random
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "src/acode"
LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def modules(commit: str | None = None) -> Iterator[tuple[str, str]]:
    """The path below the package and the text of each module, in the working tree or at a commit."""
    if commit is None:
        for path in sorted((ROOT / SOURCE).rglob("*.py")):
            yield path.relative_to(ROOT / SOURCE).as_posix(), path.read_text(encoding="utf-8")
        return
    for name in _git("ls-tree", "-r", "--name-only", commit, SOURCE).splitlines():
        if name.endswith(".py"):
            yield name.removeprefix(f"{SOURCE}/"), _git("show", f"{commit}:{name}")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout


def code_lines(text: str) -> int:
    """Lines that hold code: no comment, no blank line, no docstring."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    described = [node for node in ast.walk(ast.parse(text)) if isinstance(node, documented) and ast.get_docstring(node)]
    prose = {line for node in described for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    held = {line for one in tokens if one.type not in LAYOUT for line in range(one.start[0], one.end[0] + 1)}
    return len(held - prose)


def sizes(commit: str | None) -> Iterator[str]:
    files, lines = Counter[str](), Counter[str]()
    for path, text in modules(commit):
        package = path.split("/")[0].removesuffix(".py") if "/" in path else "(single modules)"
        files[package] += 1
        lines[package] += code_lines(text)
    yield from (f"{package:18} {files[package]:4} files {count:7,} lines" for package, count in sorted(lines.items()))
    yield f"{'all':18} {files.total():4} files {lines.total():7,} lines"


def functions(seed: int, number: int) -> Iterator[str]:
    found = [
        (path, node)
        for path, text in modules()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__")
    ]
    for path, node in random.Random(seed).sample(found, number):
        said = " ".join((ast.get_docstring(node) or "").split())
        yield f"{node.name:32} {path}:{node.lineno}  {said[:80]}"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["sizes", *commit]:
            shown = sizes(commit[0] if commit else None)
        case ["functions", seed, *number]:
            shown = functions(int(seed), int(number[0]) if number else 25)
        case _:
            sys.exit(__doc__)
    sys.stdout.writelines(f"{line}\n" for line in shown)
