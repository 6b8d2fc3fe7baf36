"""`fope-lab completion`: complete commands, options, sweep files and stages in a shell."""

from __future__ import annotations

import argparse

from fope_lab.cli.shared_options import argument
from fope_lab.config.environment import OK

SCRIPTS = {
    "bash": """_fope_lab() {
    mapfile -t COMPREPLY < <(fope-lab completion --line="${COMP_LINE:0:COMP_POINT}" \\
        --word="$2" 2>/dev/null)
    if [[ ${COMPREPLY[0]} == */ ]]; then compopt -o nospace; fi
}
complete -F _fope_lab fope-lab
""",
    "zsh": """#compdef fope-lab
_fope_lab() {
    local -a found
    found=("${(@f)$(fope-lab completion --line="$LBUFFER" 2>/dev/null)}")
    compadd -S '' -- ${(M)found:#*/}
    compadd -- ${found:#*/}
}
compdef _fope_lab fope-lab
""",
    "fish": """complete -c fope-lab -f \\
    -a '(fope-lab completion --line=(commandline -cp | string collect) 2>/dev/null)'
""",
}
"""What each shell evaluates: it asks this command for the words that can come next."""

HELP = "print a script that lets a shell complete commands, options, sweep files and stages"
ARGUMENTS = (
    argument(
        "shell",
        nargs="?",
        choices=tuple(SCRIPTS),
        metavar="SHELL",
        help='bash, zsh or fish; in bash, `eval "$(fope-lab completion bash)"` takes effect',
    ),
    argument("--line", metavar="TEXT", help="print the words that can end this command line"),
    argument(
        "--word",
        metavar="TEXT",
        help="the end of the line that the shell replaces, where it splits words at = and :",
    ),
)


def run(options: argparse.Namespace) -> int:
    """Print the script, or the words that can come next; returns the exit code."""
    from fope_lab.cli.next_words import next_words
    from fope_lab.config.problems import Problem, SweepError

    if options.line is not None:
        for word in next_words(options.line, options.word):
            print(word)
        return OK
    if options.shell is None:
        raise SweepError(Problem(("SHELL",), "is missing; needs bash, zsh or fish"))
    print(SCRIPTS[options.shell], end="")
    return OK
