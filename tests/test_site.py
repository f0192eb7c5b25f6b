"""The site and the gallery: what can be checked without building them."""

import importlib
import importlib.util
import re
import runpy
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import sparsebayes

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*/plot_*.py"))


def _module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_is_in_the_api_reference():
    page = (ROOT / "docs" / "api.rst").read_text("utf-8")
    listed = set(re.findall(r"(?m)^   ([\w.]+)$", page)) | set(re.findall(r"`(\w+)`", page))
    modules = [name for name in sparsebayes._MODULES if name != "kernels"] + ["metrics"]
    wanted = set(sparsebayes._HOME)
    for module in modules:
        names = importlib.import_module(f"sparsebayes.{module}").__all__
        wanted |= {f"{module}.{name}" for name in names if name not in sparsebayes._HOME}
    assert sorted(wanted - listed) == []
    for name in listed & {line for line in listed if line[0].isalpha() and "." in line}:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(f"sparsebayes.{module}"), attribute), name


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_draws(example, monkeypatch, capsys):
    monkeypatch.setenv("SPARSEBAYES_QUICK", "1")
    monkeypatch.setattr(sys, "argv", [str(example)])
    monkeypatch.syspath_prepend(str(example.parent))
    runpy.run_path(str(example), run_name="__main__")
    assert plt.get_fignums()
    text = example.read_text("utf-8")
    assert re.match(r'"""\n.+\n===+\n\n', text), "a title, then the message"


def test_links_that_lead_nowhere_are_found(tmp_path):
    check = _module(ROOT / "docs" / "check_links.py")
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1><a href="b.html#there">1</a><a href="#top">2</a><img src="x.png">'
        '<a href="https://example.org">3</a>'
    )
    (tmp_path / "b.html").write_text('<a href="a.html#bottom">4</a><p id="there"></p>')
    broken, inside, outside = check.broken_links(tmp_path)
    assert (inside, outside) == (4, 1)
    assert len(broken) == 2
    assert any("x.png leads to no file" in line for line in broken)
    assert any("a.html#bottom leads to no such place" in line for line in broken)
    (tmp_path / "x.png").write_bytes(b"")
    (tmp_path / "b.html").write_text('<p id="there"></p>')
    assert check.main([str(tmp_path)]) == 0


def test_every_page_of_the_site_is_reached_from_its_contents():
    docs = ROOT / "docs"
    written = {str(p.relative_to(docs).with_suffix("")) for p in docs.rglob("*.md")}
    written = {name for name in written if not name.startswith(("_", "gallery", "generated"))}
    reached = {"index"}
    for page in [docs / f"{name}.md" for name in written]:
        for block in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            for line in block.splitlines():
                entry = re.sub(r".*<(.*)>", r"\1", line.strip())
                if entry and not entry.startswith(":"):
                    found = page.parent.glob(f"{entry}.md")
                    reached |= {str(p.relative_to(docs).with_suffix("")) for p in found}
    assert written == reached
