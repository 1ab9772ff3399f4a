# SPDX-License-Identifier: Apache-2.0
"""The command line.

``commands`` defines the interface. The other modules, and torch with them, are imported when a command runs, so that
``picirc --help`` is fast.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, Group, Parameter
from cyclopts.config import Toml

from picirc import __version__
from picirc.cli import commands
from picirc.errors import printable
from picirc.interrupts import EXIT_CODE

__all__ = ["main"]

_MISTAKE, _UNREAD = 2, 141  # exit codes

app = App(
    name="picirc",
    help="Probabilistic integral circuits: learn them from data, and use them.",
    version=__version__,
    default_parameter=Parameter(
        negative=(), show_default=lambda value: None if value is False or value == () else value
    ),
    suppress_keyboard_interrupt=False,
    result_action="return_value",
)
for place, command in enumerate(commands.ALL):
    names = {"evaluate": ("eval",), "predict": ("predict", "classify")}.get(command.__name__, (command.__name__,))
    app.command(command, name=names, sort_key=place)
app.meta.group_parameters = Group("All commands")
app.meta.suppress_keyboard_interrupt = False


@app.meta.default
def _launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    config: Path | None = None,
    debug: bool = False,
) -> int | None:
    """Launch a command.

    Args:
        tokens: The command and its options.
        config: A TOML file with options by name, such as batch = 256. Flags take precedence.
        debug: Print the traceback of an error.
    """
    app.config = () if config is None else (Toml(config, must_exist=True, use_commands_as_keys=False),)
    try:
        code: int | None = app(tokens)
    finally:
        app.config = ()
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: What follows the name of the program; by default what the user typed.

    Returns:
        The exit code: 0, or 2 after a mistake of the user, which is reported in one line, or 130 when interrupted,
        or 141 when the reader of the output has gone.
    """
    tokens = sys.argv[1:] if arguments is None else list(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for characters that the terminal cannot show
    try:
        code = app.meta(tokens, exit_on_error=False, print_error=False) or 0
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the exit does not write again
        return _UNREAD
    except (CycloptsError, ValueError, OSError, MemoryError) as error:
        if "--debug" in tokens:
            traceback.print_exc()
        message = " ".join(str(error).split()) or type(error).__name__  # on one line
        print(f"picirc: error: {printable(message)}", file=sys.stderr)
        return _MISTAKE
    except KeyboardInterrupt:
        print("picirc: interrupted", file=sys.stderr)
        return EXIT_CODE
