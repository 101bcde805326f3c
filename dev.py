#!/usr/bin/env python3
"""The one command for developers of acode: set up, run, test, check, sweep, measure.

    python3 dev.py run                run examples/hello in a fresh workspace
    python3 dev.py run -- ARGS        any acode command line
    python3 dev.py test [ARGS]        the tests; with ARGS only pytest ARGS
    python3 dev.py test agents [ARGS] the trials with real agents, from where they were stopped; --model: a real one too
    python3 dev.py versions           the fast subset of the tests with every other Python that is here
    python3 dev.py package            build, install with every Python here, lowest dependencies, types, workflows
    python3 dev.py build DIR          wheel, source archive and SBOM, the same bytes for the same commit
    python3 dev.py quick              the static checks of a commit: lint, format, types, layers
    python3 dev.py check              all of them: types on three platforms, dependencies and dead code too
    python3 dev.py sweep [ARGS]       the long release sweeps; ARGS go to pytest
    python3 dev.py sweep --hours N    what fits, from where it stopped; --figures: the totals into docs/proof/
    python3 dev.py coverage           how much of the code for unit tests they execute; below 90 % fails
    python3 dev.py bench [NAME]       the benchmarks
    python3 dev.py picture [kill|page] the pictures of the README and of the page, from a real terminal and browser
    python3 dev.py kills [NAME ...]   the kill table: agents and engines, with and without acode

Needs Python 3.11 and the standard library. What the project depends on is installed once into .dev/, by uv, by venv and
pip, or by pip alone, whichever works first. It never touches the interpreter it was started with.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent
DEV = ROOT / ".dev"
PYTHON_MIN, PYTHON_NEWEST = (3, 11), (3, 14)
ENVIRONMENTS_KEPT_MAX = 12
LOG_TAIL_LINES = 25
# More workers than can work: many tests wait. Long tests come first (tests/conftest.py), and who is done helps others.
WORKERS = min(os.cpu_count() or 1, 6) + 2
TOGETHER = ["-n", str(WORKERS), "--dist", "worksteal", "--inline-snapshot=disable"]

# Debian's python3 has neither pip nor ensurepip; this package holds pip as a wheel, which runs from its zip file.
PIP_PACKAGE = "python3-pip-whl"


def main(argv: list[str]) -> int:
    require_python()
    command, rest = (argv[0], argv[1:]) if argv else ("help", [])
    commands: dict[str, Callable[[list[str]], int]] = {
        "run": run,
        "test": test,
        "integrations": integrations,
        "versions": versions,
        "fast": fast,
        "package": package,
        "build": build,
        "version": version,
        "quick": quick,
        "check": check,
        "sweep": sweep,
        "coverage": coverage,
        "bench": bench,
        "picture": picture,
        "kills": kills,
    }
    if command in commands:
        return commands[command](rest)
    print(__doc__)
    return 0 if command in ("help", "-h", "--help") else 2


# What can be asked for.


def run(args: list[str]) -> int:
    # The environment of the tests serves every purpose; a person who only runs acode waits for no lint or test tool.
    python = Environment.ready("dev" if is_ready("dev") else "run")
    if args and args[0] == "--":
        args = args[1:]
    if args:
        python.become("-m", "acode", *args)
    # A workspace for each run: one that was killed stays there to be resumed, and never blocks the next.
    workspaces = DEV / "workspaces"
    workspaces.mkdir(exist_ok=True)
    workspace = Path(tempfile.mkdtemp(prefix="hello-", dir=workspaces))
    shutil.copytree(ROOT / "examples" / "hello", workspace, dirs_exist_ok=True)
    shown = os.path.relpath(workspace)
    say(f"workspace {shown}")
    say(f"if you stop it: python3 dev.py run -- -C {shown} resume --last --yes")
    python.become("-m", "acode", "-C", str(workspace), "run", str(workspace / "plan.yml"))


def test(args: list[str]) -> int:
    python = Environment.ready()
    default_marks = [] if "-m" in args else ["-m", "not release and not agents"]
    if args[:1] == ["agents"]:
        install_agents(AGENTS)
        python.become("-m", "pytest", "-m", "agents", "--timeout", "0", "tests/agents", *args[1:])
    if not args or any("tests/agents" in word for word in args):
        install_agents([GATE_AGENT])
    if args:
        python.become("-m", "pytest", *default_marks, *args)
    integrate = Environment.ready("integrations").quietly
    say("the tests with LangGraph, in their own environment, then all others ...")
    with ThreadPoolExecutor() as beside:
        integrated = beside.submit(integrate, *alone("integrations"))
        # This compiles the tests once; each worker would do it for itself, all at the same time.
        python.quietly("-m", "pytest", "--collect-only", "-qq", *default_marks)
        print(integrated.result().stdout, end="", flush=True)
    status = python("-m", "pytest", *TOGETHER, *default_marks)
    if integrated.result().returncode and status == 0:
        say("the tests passed, but those with LangGraph failed")
        return 1
    return status


def alone(name: str) -> list[str]:
    return ["-m", "pytest", "-q", "--confcutdir", f"tests/{name}", "-p", "no:cacheprovider", f"tests/{name}"]


def integrations(args: list[str]) -> int:
    """Tests with other frameworks, or `buckets`, in an environment of their own: it would hold our packages back."""
    name = args[0] if args else "integrations"
    return Environment.ready(name)(*alone(name))


FAST = ["tests/unit", "tests/store", "tests/steps/test_step_run.py", "tests/library/test_steps.py"]


def fast(args: list[str]) -> int:
    """The fast subset, with the Python that this was started with."""
    return Environment.ready("fast")("-m", "pytest", "-q", *TOGETHER, "-m", "not release", *(args or FAST))


def versions(args: list[str]) -> int:
    failed = []
    for version, python in other_pythons().items():
        if python is None:
            say(f"Python {version} is not here: nothing is tested with it")
            continue
        say(f"with Python {version}:")
        if subprocess.run([python, str(ROOT / "dev.py"), "fast", *args], check=False).returncode:
            failed.append(version)
    if failed:
        say(f"failed with Python {', '.join(failed)}")
    return 1 if failed else 0


def other_pythons() -> dict[str, str | None]:
    """The supported versions, with a Python that is not this one; None where there is none."""
    found: dict[str, str | None] = {f"3.{minor}": None for minor in range(PYTHON_MIN[1], PYTHON_NEWEST[1] + 1)}
    places = [*filter(None, (shutil.which(f"python{version}") for version in found)), "/usr/bin/python3"]
    for python in [*places, *map(str, sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3")))]:
        version = version_of(python)
        short = ".".join(version.split(".")[:2])
        if version != platform.python_version() and found.get(short, "") is None:
            found[short] = python
    here = ".".join(platform.python_version_tuple()[:2])
    return {version: python for version, python in found.items() if version != here or python is not None}


def package(args: list[str]) -> int:
    """What is published: built twice, installed and started with each Python here, typed, and its workflows valid."""
    # It waits for the package index and for other checkers, however long a busy machine takes.
    arguments = ["-m", "pytest", "-q", "--confcutdir", "tests/package", "-p", "no:cacheprovider", "--timeout", "1800"]
    return Environment.ready("package")(*arguments, *(args or ["tests/package"]))


def build(args: list[str]) -> int:
    """Wheel, source archive and bill of materials, made by tests/package/build.py."""
    place = Path(args[0] if args else "dist").resolve()
    return Environment.ready("package")("-m", "tests.package.build", str(place))


def version(_args: list[str]) -> int:
    print(project_table()["version"])
    return 0


def version_of(python: str) -> str:
    """As in 3.11.2; empty where it cannot be started."""
    query = "import platform; print(platform.python_version())"
    try:
        return subprocess.run([python, "-c", query], check=False, text=True, capture_output=True).stdout.strip()
    except OSError:
        return ""


def quick(_args: list[str]) -> int:
    return checked(CHECKS_OF_A_COMMIT)


def check(_args: list[str]) -> int:
    return checked(CHECKS_OF_A_COMMIT + CHECKS_FOR_RELEASE)


def checked(checks: list[tuple[str, list[str]]]) -> int:
    failed = failed_checks(Environment.ready(), checks)
    say(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return 1 if failed else 0


def sweep(args: list[str]) -> int:
    """With --hours or --figures in portions that a kill does not lose; otherwise what pytest is told."""
    if {"--hours", "--figures"} & {word.partition("=")[0] for word in args}:
        Environment.ready("sweep").become("-m", "tests.sweep", *args)
    Environment.ready("sweep").become("-m", "pytest", "-m", "release", "--timeout", "0", *args)


def coverage(_args: list[str]) -> int:
    """Measured and recorded by benchmarks/unit_coverage.py, which says what is measured and why."""
    Environment.ready().become("-m", "benchmarks.unit_coverage")


def bench(args: list[str]) -> int:
    if {"peers", "at_once", "kills", "curve", "fleet", "scenarios"} & set(args):
        os.environ.update(peers_variables())
    Environment.ready().become(str(ROOT / "benchmarks" / "run.py"), *args)


def peers_variables() -> dict[str, str]:
    peers = Environment.ready("peers")
    return {
        "ACODE_PEERS_PYTHON": str(peers.python),
        "ACODE_PEERS_PYTHONPATH": peers.variables.get("PYTHONPATH", ""),
    }


def kills(args: list[str]) -> int:
    """Without names: every engine and agent. The protocol is in docs/reference/kills.md."""
    if not args or not set(args) <= set(AGENTS):
        os.environ.update(peers_variables())
    install_agents([name for name in AGENTS if name in args or not args])
    Environment.ready().become("-m", "benchmarks.kills", *args)


# Agents of others, each at the version of its lock file. Whichever cannot be installed is reported by its tests.
AGENTS = ("claude", "codex", "gemini", "opencode")
GATE_AGENT = "gemini"  # of those with an open source the one that is installed first


def install_agents(names: Iterable[str]) -> None:
    for name in names:
        pins, place = ROOT / "tests" / "agents" / "clients" / name, DEV / "agents" / name
        lock = (pins / "package-lock.json").read_text(encoding="utf-8")
        with only_one_at_a_time():
            ready = place / "ready"
            if ready.exists() and ready.read_text(encoding="utf-8") == lock:
                continue
            say(f"installing {name} once with npm ...")
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(pins, place)
            # Their programs come as packages for the platform: nothing has to be executed to install them.
            problem = complaint(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(place)])
            if problem is None:
                ready.write_text(lock, encoding="utf-8")
            else:
                say(f"{name} could not be installed:\n{problem}")


def picture(args: list[str]) -> int:
    """kill: the README's, needs tmux; page: the guide's, needs Chromium; without a name both."""
    return max(Environment.ready()(str(ROOT / "docs" / "images" / f"{name}.py")) for name in args or ("kill", "page"))


MYPY = ["-m", "mypy", "--no-error-summary"]
WINDOWS = ["--platform", "win32", "--disable-error-code", "attr-defined", "--no-warn-unused-ignores"]
LINT_IMPORTS = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
CHECKS_OF_A_COMMIT: list[tuple[str, list[str]]] = [
    ("ruff check", ["-m", "ruff", "check", "--quiet"]),
    ("ruff format", ["-m", "ruff", "format", "--check", "--quiet"]),
    ("mypy", [*MYPY, "--cache-dir", ".dev/mypy"]),
    ("layers", ["-c", LINT_IMPORTS, "--no-logo", "--cache-dir", ".dev/layers"]),
]
CHECKS_FOR_RELEASE: list[tuple[str, list[str]]] = [
    ("mypy for macOS", [*MYPY, "--platform", "darwin", "--cache-dir", ".dev/mypy-darwin", "src/acode", "dev.py"]),
    # Windows is refused at start; what only POSIX has is used without a look at the platform.
    ("mypy for Windows", [*MYPY, *WINDOWS, "--cache-dir", ".dev/mypy-win32", "src/acode", "dev.py"]),
    ("dependencies", ["-m", "deptry", "src", "--no-ansi"]),
    ("dead code", ["-m", "vulture"]),
]


def failed_checks(python: Environment, checks: list[tuple[str, list[str]]]) -> list[str]:
    failed = []
    with ThreadPoolExecutor() as together:
        ended = together.map(lambda check: python.quietly(*check[1]), checks)
        for (name, _), done in zip(checks, ended, strict=True):
            if done.returncode:
                failed.append(name)
                say(f"{name} failed\n{done.stdout.rstrip()}")
    return failed


# Setting up.


class Environment:
    """The interpreter that sees the project and what it depends on."""

    def __init__(self, python: Path, variables: Mapping[str, str]) -> None:
        self.python = python
        self.variables = {**os.environ, **variables}

    def __call__(self, *command: str) -> int:
        """Run the command and wait for it; Ctrl+C is for the command, which has things to put away."""
        with subprocess.Popen([str(self.python), *command], cwd=self.directory(command), env=self.variables) as child:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, lambda *_: child.terminate())
            child.wait()
        return exit_status(child.returncode)

    def become(self, *command: str) -> NoReturn:
        """Be replaced by the command, so that a signal, a kill -9 and the exit status are its own."""
        if sys.platform == "win32":
            raise SystemExit(self(*command))
        else:
            os.chdir(self.directory(command))
            os.execve(self.python, [str(self.python), *command], self.variables)

    def quietly(self, *command: str) -> subprocess.CompletedProcess[str]:
        line = [str(self.python), *command]
        return subprocess.run(
            line, cwd=ROOT, env=self.variables, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    @staticmethod
    def directory(command: tuple[str, ...]) -> Path:
        """acode works where the caller stands; everything else works on the project."""
        return Path.cwd() if command[:2] == ("-m", "acode") else ROOT

    @classmethod
    def ready(cls, group: str = "dev") -> Environment:
        place = environment_place(group)
        with only_one_at_a_time():
            if not (place / "ready").exists():
                set_up(place, group)
            os.utime(place)
        python = python_of(place)
        if python.exists():
            return cls(python, {})
        seen = [str(ROOT / "src"), str(place / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
        return cls(Path(sys.executable), {"PYTHONPATH": os.pathsep.join(seen)})


def environment_place(group: str) -> Path:
    return DEV / f"env-{environment_key(group)}"


def is_ready(group: str) -> bool:
    return (environment_place(group) / "ready").exists()


def environment_key(group: str) -> str:
    """Changes when other packages are wanted, not when a lint rule does."""
    wanted = json.dumps([wanted_packages(group), sys.version, sys.executable])
    lock = ROOT / "uv.lock"
    return hashlib.sha256(wanted.encode() + (lock.read_bytes() if lock.exists() else b"")).hexdigest()[:12]


def set_up(place: Path, group: str) -> None:
    """Leave a complete environment behind, marked as such at the very end, or stop with what each way said."""
    reasons = []
    for name, install in (("uv", with_uv), ("venv and pip", with_venv), ("pip", with_pip_alone)):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        began = time.monotonic()
        reason = unusable(name) or install(place, group)
        if reason is None:
            show_the_source(place)
            (place / "ready").write_text(f"{name}\n")
            say(f"ready after {time.monotonic() - began:.0f} s")
            forget_old_environments(place)
            return
        reasons.append(f"{name}: {reason}")
    shutil.rmtree(place, ignore_errors=True)
    stop("could not set up the environment.\n\n" + "\n\n".join(reasons) + "\n\nIs the package index reachable?")


def unusable(name: str) -> str | None:
    if name == "uv" and shutil.which("uv") is None:
        return "not installed"
    if name == "venv and pip" and not all(map(importlib.util.find_spec, ("venv", "ensurepip"))):
        return "this Python has no venv (on Debian the package python3-venv)"
    say(f"setting up once with {name} ...")
    return None


def with_uv(place: Path, group: str) -> str | None:
    # Behind a company's own certificate authority uv needs the system's certificates, as pip takes them by itself.
    variables = {"UV_PROJECT_ENVIRONMENT": str(place), "UV_SYSTEM_CERTS": os.environ.get("UV_SYSTEM_CERTS", "1")}
    command = ["uv", "sync", "--frozen", "--group", group, "--no-install-project", "--compile-bytecode"]
    return complaint([*command, "--python", sys.executable], variables)


def with_venv(place: Path, group: str) -> str | None:
    made = complaint([sys.executable, "-m", "venv", "--clear", str(place)])
    return made or complaint([str(python_of(place)), "-m", "pip", "install", *what_to_install(place, group)])


def with_pip_alone(place: Path, group: str) -> str | None:
    pip: list[str] = ["-m", "pip"]
    if importlib.util.find_spec("pip") is None:
        wheel = pip_from_debian(place)
        if wheel is None:
            return "this Python has no pip (on Debian the packages python3-pip or python3-venv)"
        pip = [str(wheel / "pip")]
    target = str(place / "site")
    return complaint([sys.executable, *pip, "install", "--target", target, *what_to_install(place, group)])


def pip_from_debian(place: Path) -> Path | None:
    """The system's own package of pip, unpacked here: needs no root and installs nothing on the machine."""
    if not all(map(shutil.which, ("apt-get", "dpkg"))):
        return None
    subprocess.run(["apt-get", "download", "-qq", PIP_PACKAGE], cwd=place, check=False, capture_output=True)
    for package in place.glob(f"{PIP_PACKAGE}_*.deb"):
        subprocess.run(["dpkg", "-x", package.name, "."], cwd=place, check=False, capture_output=True)
    return next(iter(sorted((place / "usr/share/python-wheels").glob("pip-*.whl"))), None)


def what_to_install(place: Path, group: str) -> list[str]:
    """pip's arguments: the project's own requirements, held to the versions of the lock file."""
    requirements, pins = place / "requirements.txt", place / "constraints.txt"
    requirements.write_text("\n".join(wanted_packages(group)) + "\n", encoding="utf-8")
    pins.write_text("\n".join(locked_versions()) + "\n", encoding="utf-8")
    return ["-r", str(requirements), "-c", str(pins)]


def wanted_packages(group: str) -> list[str]:
    project = project_table()
    groups: dict[str, list[Any]] = read_toml(ROOT / "pyproject.toml")["dependency-groups"]
    wanted: list[str] = list(project["dependencies"])
    waiting: list[Any] = list(groups[group])
    while waiting:
        line = waiting.pop()
        if isinstance(line, dict):
            waiting += groups[line["include-group"]]
        elif line.startswith(f"{project['name']}["):
            for extra in line.split("[")[1].rstrip("]").replace(" ", "").split(","):
                waiting += project["optional-dependencies"][extra]
        else:
            wanted.append(line)
    return wanted


def locked_versions() -> list[str]:
    """One pin per package; one that is locked twice, for different platforms or groups, is left to pip."""
    lock = ROOT / "uv.lock"
    packages = read_toml(lock)["package"] if lock.exists() else []
    versions: dict[str, set[str]] = {}
    for package in packages:
        if "registry" in package["source"]:
            versions.setdefault(package["name"], set()).add(package["version"])
    return [f"{name}=={found.pop()}" for name, found in versions.items() if len(found) == 1]


def show_the_source(place: Path) -> None:
    """A path file instead of an editable install: nothing to build, and an edit is seen at once."""
    python = python_of(place)
    if python.exists():
        query = "import sysconfig; print(sysconfig.get_path('purelib'))"
        packages = subprocess.check_output([str(python), "-c", query], text=True).strip()
        (Path(packages) / "acode-source.pth").write_text(f"{ROOT / 'src'}\n", encoding="utf-8")


def forget_old_environments(place: Path) -> None:
    others = sorted(DEV.glob("env-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in [path for path in others if path != place][ENVIRONMENTS_KEPT_MAX - 1 :]:
        shutil.rmtree(old, ignore_errors=True)


# Small print.


def complaint(command: list[str], variables: Mapping[str, str] | None = None) -> str | None:
    """Run the command and show how it gets on; None if it succeeded, else the end of what it said."""
    misleading = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
    kept = {name: value for name, value in os.environ.items() if name not in misleading}
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    env = {**kept, **(variables or {})}
    try:
        child = subprocess.Popen(command, cwd=ROOT, env=env, text=True, errors="replace", **streams)
    except OSError as error:
        return f"{command[0]} could not be started: {error}"
    with child:
        assert child.stdout is not None
        last_lines = deque(with_progress(child.stdout), maxlen=LOG_TAIL_LINES)
    if child.returncode == 0:
        return None
    return "".join(last_lines).rstrip() or f"exit status {child.returncode}"


def with_progress(lines: Iterable[str]) -> Iterator[str]:
    """Pass an installer's lines on, and tell a person what it is at: one line that changes, or one in ten packages."""
    found = 0
    for line in lines:
        if line.startswith("Collecting "):
            found += 1
            name = re.split(r"[^\w.-]", line.removeprefix("Collecting "), maxsplit=1)[0]
            if sys.stderr.isatty():
                print(f"\rdev.py: {found} packages found: {name:<40.40}", end="", file=sys.stderr, flush=True)
            elif found % 10 == 0:
                say(f"{found} packages found")
        elif line.startswith("Installing collected packages"):
            if sys.stderr.isatty():
                print(file=sys.stderr)
            say(f"installing {line.count(',') + 1} packages")
        yield line


@contextlib.contextmanager
def only_one_at_a_time() -> Iterator[None]:
    """Two terminals may start at once; the second waits for the first's environment instead of breaking it."""
    try:
        DEV.mkdir(exist_ok=True)
        file = (DEV / "lock").open("a+b")
    except OSError as error:
        stop(f"{DEV} cannot be written: {error}")
    with file:
        if sys.platform == "win32":
            import msvcrt

            while True:
                # It gives up by itself after ten seconds, which is shorter than a first installation.
                with contextlib.suppress(OSError):
                    msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
                    break
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def python_of(place: Path) -> Path:
    return place / "Scripts" / "python.exe" if platform.system() == "Windows" else place / "bin" / "python"


def project_table() -> dict[str, Any]:
    table: dict[str, Any] = read_toml(ROOT / "pyproject.toml")["project"]
    return table


def read_toml(path: Path) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(path.read_text(encoding="utf-8"))


def exit_status(returncode: int) -> int:
    return 128 - returncode if returncode < 0 else returncode


def require_python() -> None:
    """Hand over to a newer interpreter if this one is too old and one is to be found."""
    if sys.version_info >= PYTHON_MIN:
        return
    for minor in range(PYTHON_NEWEST[1] + 1, PYTHON_MIN[1] - 1, -1):
        newer = shutil.which(f"python3.{minor}")
        if newer and subprocess.run([newer, "-c", ""], check=False).returncode == 0:
            os.execv(newer, [newer, str(ROOT / "dev.py"), *sys.argv[1:]])
    stop("acode needs Python 3.11 or newer; this is " + platform.python_version())


def say(text: str) -> None:
    print(f"dev.py: {text}", file=sys.stderr, flush=True)


def stop(text: str) -> NoReturn:
    say(text)
    raise SystemExit(1)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
