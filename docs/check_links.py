"""Check the links of the built site: ``python docs/check_links.py docs/_build/html``.

Every link that stays in the site must lead to a file that is there and, where it names one, to an
anchor of that file; the same for pictures, scripts and style sheets. Nothing is fetched: links to
other places are counted, not followed. Standard library only; ends with 1 where a link is broken.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element leads to and what it is called."""
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


def _written(site: Path) -> list[Path]:
    """The pages, without the templates that the theme leaves among its files."""
    return [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]


def broken_links(site: Path) -> tuple[list[str], int, int]:
    """Sentences on the broken links, and how many links stay in the site and leave it."""
    site = site.resolve()
    pages = {path: _Page(path.read_text("utf-8")) for path in _written(site)}
    broken, inside, outside = [], 0, 0
    for path, page in pages.items():
        where = path.relative_to(site)
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                outside += parts.scheme != "data"
                continue
            inside += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                broken.append(f"{where}: {link} leads to no file")
                continue
            anchor = unquote(parts.fragment)
            if anchor and target in pages and anchor not in pages[target].anchors:
                broken.append(f"{where}: {link} leads to no such place")
    return broken, inside, outside


def main(arguments: list[str]) -> int:
    """Say what is broken."""
    broken, inside, outside = broken_links(Path(arguments[0]))
    print(*broken, sep="\n", end="\n" * bool(broken))
    print(
        f"{inside} links in the site, {len(broken)} broken; {outside} to other places, not followed"
    )
    return 1 if broken or not inside else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
