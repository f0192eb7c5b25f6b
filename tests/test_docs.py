import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [p for p in sorted((ROOT / "docs").rglob("*.md")) if "```python" in p.read_text("utf-8")]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_code_in_the_documentation_runs(page, capsys):
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
        exec(compile(block, page.name, "exec"), names)
    assert names


# Pages that are written by hand for users; the others are generated or for contributors.
_CONTRIBUTORS = ("theory", "decisions")
_GENERATED = ("benchmarks.md", "notation.md")
USER_PAGES = [
    page
    for page in sorted((ROOT / "docs").rglob("*.md"))
    if not {*page.relative_to(ROOT / "docs").parts} & {*_CONTRIBUTORS, *_GENERATED, "_build"}
]


def _prose(text):
    """Return the lines of a page without code, tables and directives."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return [line for line in text.splitlines() if not line.startswith("|")]


@pytest.mark.parametrize("page", USER_PAGES, ids=lambda p: p.name)
def test_lines_and_paragraphs_of_user_pages_are_short(page):
    lines = _prose(page.read_text("utf-8"))
    assert [line for line in lines if len(line) > 100] == []
    paragraphs = "\n".join(lines).split("\n\n")
    assert [p for p in paragraphs if len(p.splitlines()) > 6 and not p.startswith(("-", "#"))] == []
