"""Parse a command line that the model wants to run: does it stay within a pattern like `git *`?

Some options make a harmless program run another one or write elsewhere, and some programs only start others. A pattern
with a wildcard covers none of them: the settings name the whole line, or a person is asked.
"""

from __future__ import annotations

import re
import shlex

# These run what follows them.
STARTERS = frozenset(
    b"env xargs sudo doas su nice nohup time timeout exec eval command builtin stdbuf setsid unshare chroot watch"
    b" parallel flock script source . ionice chrt taskset strace ltrace gdb busybox".split()
)
# Options by program: a long one is meant by any beginning of it, a short one also where it is joined with others.
OPTIONS: dict[str, tuple[str, ...]] = {
    "git": (
        "-c", "-C", "-O", "-x", "-p", "--config-env", "--git-dir", "--work-tree", "--exec-path", "--output",
        "--output-directory", "--ext-diff", "--textconv", "--upload-pack", "--receive-pack", "--exec", "--extcmd",
        "--open-files-in-pager", "--paginate", "--template", "--separate-git-dir", "--super-prefix", "--no-index",
    ),
    "find": (
        "-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls",
    ),
    "fd": ("-x", "-X", "--exec", "--exec-batch"),
    "rg": ("--pre", "--hostname-bin"),
    "sort": ("-o", "-T", "--output", "--compress-program", "--temporary-directory"),
    "sed": ("-i", "-f", "--in-place", "--file"),
    "tar": ("-C", "-I", "-F", "--to-command", "--checkpoint-action", "--use-compress-program", "--directory",
            "--info-script", "--new-volume-script", "--rsh-command"),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "ssh": ("-o", "-F"),
    "tree": ("-o",),
    "man": ("-P", "--pager"),
}  # fmt: skip
# Subcommands of git that run programs, or change what later ones run.
GIT_RUNS = frozenset(
    b"bisect submodule filter-branch difftool mergetool config hook daemon archive bundle clone worktree send-email"
    b" instaweb maintenance credential remote-ext upload-pack receive-pack var help".split()
)
GIT_KNOWN = frozenset(
    b"add am annotate apply blame branch cat-file check-attr check-ignore checkout cherry cherry-pick clean commit"
    b" count-objects describe diff diff-files diff-index diff-tree fetch for-each-ref format-patch fsck gc grep init"
    b" log ls-files ls-remote ls-tree merge merge-base mv name-rev notes prune pull push range-diff rebase reflog"
    b" remote reset restore revert rev-list rev-parse rm shortlog show show-branch show-ref sparse-checkout stash"
    b" status switch symbolic-ref tag update-index version whatchanged write-tree".split()
)
_OUTPUT = re.compile(r"(?:-o|--out[a-z-]*|--log-file|--file)=?(.*)", re.DOTALL)


def is_covered(command: str, pattern: str) -> bool:
    """Whether a pattern with a wildcard that fits the text of the command may allow it."""
    words = words_of(command)
    if not words or "=" in words[0] or words[0].encode() in STARTERS:
        return False
    program = words[0].rpartition("/")[2]
    if program.encode() in STARTERS or any(map(_leads_outside, words[1:], [*words[2:], ""])):
        return False
    if any(_means(word, option) for word in words[1:] for option in OPTIONS.get(program, ())):
        return False
    return program != "git" or _git_is_covered(words, pattern)


def words_of(command: str) -> list[str]:
    """The words that the shell would see; none where the shell would expand them, with a result unknown here."""
    if re.search(r"[\\{]", command):
        return []
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _means(word: str, option: str) -> bool:
    if option.startswith("--"):
        name = word.partition("=")[0]
        return len(name) > len("--x") and option.startswith(name)
    if len(option) > len("-x"):  # find's own
        return word == option
    return word.startswith("-") and not word.startswith("--") and option[1] in word[1:].partition("=")[0]


def _leads_outside(word: str, following: str) -> bool:
    """An output that is to be written to a place outside of the workspace."""
    found = _OUTPUT.fullmatch(word)
    place = (found[1] or following) if found else ""
    return place.startswith(("/", "~")) or ".." in place.split("/")


def _git_is_covered(words: list[str], pattern: str) -> bool:
    """A word that is no command of git is an alias, and the repository defines the command that it runs."""
    if len(words) == 1:
        return True
    asked = words[1].encode()
    return asked not in GIT_RUNS and (asked in GIT_KNOWN or pattern.startswith(f"git {words[1]}"))
