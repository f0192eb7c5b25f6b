import contextlib
import io
import re
import struct
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


TABLE, SINC = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
TABLE_SAYS, SINC_SAYS = re.findall(r"```text\n(.*?)```", README, re.DOTALL)


def test_readme_table_is_fitted_and_says_what_it_was(capsys):
    names: dict = {}
    exec(TABLE, names)
    assert capsys.readouterr().out == TABLE_SAYS
    test, mean, std = names["test"], names["mean"], names["std"]
    assert 0.85 < (abs(test["target"] - mean) < 1.96 * std).mean() <= 1.0
    assert names["model"].score(test, test["target"]) > 0.3


def test_readme_example_runs_and_keeps_few_functions_and_the_true_noise(capsys):
    names: dict = {}
    exec(SINC, names)
    model = names["model"]
    assert len(model.active_) < 20
    assert 0.08 < model.noise_variance_**0.5 < 0.12
    assert names["std"].shape == (200,)
    assert "kernel functions kept" in capsys.readouterr().out


def test_readme_gives_the_two_commands_and_its_links_lead_somewhere():
    assert "python3 dev.py demo" in README
    assert "python3 dev.py test" in README
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert links
    for link in links:
        assert (Path(__file__).parents[1] / link).exists(), link


def _png_text(content):
    """The text chunks of a PNG file."""
    found, at = {}, 8
    while at < len(content):
        (length,) = struct.unpack(">I", content[at : at + 4])
        kind, data = content[at + 4 : at + 8], content[at + 8 : at + 8 + length]
        if kind == b"tEXt":
            name, text = data.split(b"\0", 1)
            found[name.decode()] = text.decode("latin-1")
        at += 12 + length
    return found


def test_output_and_picture_are_those_of_the_code_beside_them(tmp_path):
    """If not: python examples/plot_sinc.py docs/images/sinc.png, and its output into the README."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(SINC, {})
    assert said.getvalue() == SINC_SAYS
    root = Path(__file__).parents[1]
    drawn = _png_text((root / "docs" / "images" / "sinc.png").read_bytes())
    assert drawn["Description"] + "\n" == said.getvalue()
    made = tmp_path / "sinc.png"
    command = [sys.executable, str(root / "examples" / "plot_sinc.py"), str(made)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True)
    assert printed.stdout == said.getvalue()
    assert _png_text(made.read_bytes())["Description"] == drawn["Description"]
