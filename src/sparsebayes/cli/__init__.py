"""The command line: ``sparsebayes fit | predict | export | compare | narx | demo``.

`commands` has one function for each; `tables` reads files, `comparison` measures models on rows
held out, `report` writes the pages.
"""

from .commands import main

__all__ = ["main"]
