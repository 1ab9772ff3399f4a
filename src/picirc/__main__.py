# SPDX-License-Identifier: Apache-2.0
"""The program ``picirc``, and ``python -m picirc``."""

from __future__ import annotations

import sys

from picirc.interrupts import run_to_the_end


def main() -> int:
    """Run the command line. It is imported here, so that Ctrl-C during the import ends in one line too."""

    def program() -> int:
        from picirc.cli import main as run

        return run()

    return run_to_the_end(program)


if __name__ == "__main__":
    sys.exit(main())
