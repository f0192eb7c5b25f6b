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
