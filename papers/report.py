"""A self-contained HTML page of sections with text, a table and a figure each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from .figures import svg
from .files import write_whole

_STYLE = """
  :root { --ink: #222; --paper: #fff; --faint: #666; --line: #ddd; --code: #f5f5f5; }
  @media (prefers-color-scheme: dark) {
    :root { --ink: #ddd; --paper: #16181a; --faint: #999; --line: #3a3d40; --code: #222527; }
  }
  body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 68rem;
         padding: 0 1rem; color: var(--ink); background: var(--paper); }
  h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; border-bottom: 1px solid var(--line); }
  p.note { color: var(--faint); font-size: .9rem; }
  .scroll { overflow-x: auto; margin: .6rem 0; }
  table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .95rem; }
  th, td { padding: .25rem .7rem; text-align: left; border-bottom: 1px solid var(--line);
           vertical-align: top; }
  pre { white-space: pre-wrap; font: .9rem/1.45 ui-monospace, monospace; background: var(--code);
        padding: .6rem .8rem; }
  svg { min-width: 38rem; max-width: 100%; height: auto; color: var(--ink); }
  svg text { fill: currentColor; }
"""


@dataclass(frozen=True)
class Section:
    """One section of a page; what is empty is left out."""

    title: str
    text: str = ""
    preformatted: str = ""
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    figure: Any = None
    note: str = ""

    def html(self) -> str:
        """Return the section as HTML."""
        parts = [f"<h2>{escape(self.title)}</h2>"]
        if self.text:
            parts.append(f"<p>{escape(self.text)}</p>")
        if self.preformatted:
            parts.append(f"<pre>{escape(self.preformatted)}</pre>")
        if self.rows:
            rows = [_row("td", row) for row in self.rows]
            table = "\n".join([f"<table>\n{_row('th', self.head)}", *rows, "</table>"])
            parts.append(f'<div class="scroll">{table}</div>')
        if self.figure is not None:
            parts.append(f'<div class="scroll">{svg(self.figure)}</div>')
        if self.note:
            parts.append(f'<p class="note">{escape(self.note)}</p>')
        return "\n".join(parts)


def write_page(path: str, title: str, subtitle: str, sections: Sequence[Section]) -> None:
    """Write a page of sections as one HTML file."""
    body = "\n".join(section.html() for section in sections)
    text = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{escape(title)}</h1>\n<p class="note">{escape(subtitle)}</p>\n{body}\n'
        "</body>\n</html>\n"
    )
    write_whole(path, text.encode())


def _row(kind: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in cells) + "</tr>"
