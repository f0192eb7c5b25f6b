"""The command line: ``sparsebayes demo | compare | fit | predict | export | narx | models``.

============== ===================================================================
`arguments`    the options of each command
`fit`          fit one model to a table
`prediction`   predict with a saved model, and export it
`compare`      compare models on a table, or on the data set of the demonstration
`narx`         identify a dynamic system
`prepared`     a table with its target and inputs, ready for a model
`tables`       tables in files
`comparison`   scores of models on held-out rows
`report`       HTML reports
`progress`     a bar or a log on standard error
============== ===================================================================

A user error is reported in one sentence on standard error, with exit status 2, before the long work
starts. Files are written completely or not at all. Results go to standard output, progress to
standard error.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

from .arguments import make_parser


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    options = make_parser().parse_args(arguments)
    shown: set[str] = set()

    def show_warning(message: Any, *_: Any, **__: Any) -> None:
        if str(message) not in shown:  # once, also where a command predicts the same rows twice
            shown.add(str(message))
            print(f"sparsebayes: warning: {message}", file=sys.stderr)

    try:
        with warnings.catch_warnings():
            warnings.showwarning = show_warning
            options.run(options)
            return 0
    except KeyboardInterrupt:
        print("sparsebayes: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - nothing more can be printed there
        return 1
    except (ValueError, OSError, ImportError, MemoryError) as error:
        sentence = " ".join(str(error).split()) or type(error).__name__
        print(f"sparsebayes: {sentence}", file=sys.stderr)
        return 2
