"""``python -m sparsebayes``."""

import sys

from .cli import main

sys.exit(main())
