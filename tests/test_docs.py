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


# Pages that are written by hand; the others are generated.
_GENERATED = {"notation.md", "gallery", "generated", "_build"}
WRITTEN = [
    page
    for page in sorted((ROOT / "docs").rglob("*.md"))
    if not {*page.relative_to(ROOT / "docs").parts} & _GENERATED
]
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s")


def _paragraphs(text):
    """Return the paragraphs and list items of a page, without code, formulas, tables and heads."""
    text = re.sub(r"```.*?```|\$\$.*?\$\$", "", text, flags=re.DOTALL)
    paragraphs = [[]]
    for line in text.splitlines():
        if not line.strip() or line.startswith(("|", "#")) or _ITEM.match(line):
            paragraphs.append([])
        if line.strip() and not line.startswith(("|", "#")):
            paragraphs[-1].append(line)
    return [lines for lines in paragraphs if lines and not lines[0].startswith("`test_")]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda p: p.name)
def test_lines_and_paragraphs_are_short(page):
    paragraphs = _paragraphs(page.read_text("utf-8"))
    assert [line for lines in paragraphs for line in lines if len(line) > 100] == []
    assert [lines for lines in paragraphs if len(lines) > 6] == []


def test_tests_that_theory_pages_name_exist():
    source = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for page in (ROOT / "docs" / "theory").glob("*.md"):
        for name in re.findall(r"`(test_\w+)`", page.read_text()):
            assert f"def {name}(" in source, f"{page.name} names {name}"
