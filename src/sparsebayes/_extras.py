"""Optional packages, which are checked before the work that needs them."""

from __future__ import annotations

from importlib.util import find_spec


def require(extra: str, what: str, *packages: str) -> None:
    """Raise ImportError with a sentence unless all `packages` are installed."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"{what} needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} "
            f"not installed: pip install 'sparsebayes[{extra}]'"
        )
