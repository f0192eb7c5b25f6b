import contextlib
import io
import re
import struct
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


(EXAMPLE,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
(OUTPUT,) = re.findall(r"```text\n(.*?)```", README, re.DOTALL)


def test_readme_example_runs_and_keeps_few_functions_and_the_true_noise(capsys):
    names: dict = {}
    exec(EXAMPLE, names)
    model = names["model"]
    assert len(model.active_) < 20
    assert 0.08 < model.noise_variance_**0.5 < 0.12
    assert names["std"].shape == (100,)
    assert "kernel functions kept" in capsys.readouterr().out


def test_readme_gives_the_two_commands_and_its_links_lead_somewhere():
    assert "python3 dev.py demo" in README
    assert "python3 dev.py test" in README
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert links
    for link in links:
        assert (Path(__file__).parents[1] / link).exists(), link


def _png_text(content):
    """Return the text chunks of a PNG file."""
    chunks, at = {}, 8
    while at < len(content):
        (length,) = struct.unpack(">I", content[at : at + 4])
        kind, data = content[at + 4 : at + 8], content[at + 8 : at + 8 + length]
        if kind == b"tEXt":
            name, text = data.split(b"\0", 1)
            chunks[name.decode()] = text.decode("latin-1")
        at += 12 + length
    return chunks


def test_readme_is_a_screen_and_a_half_with_short_lines():
    lines = README.splitlines()
    assert len(lines) < 95
    assert all(len(line) <= 100 for line in lines if not line.startswith(("|", "!")))


def test_output_and_picture_are_those_of_the_code_beside_them(tmp_path):
    """If not: run examples/intervals/plot_sinc.py docs/images/sinc.png and copy its output."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(EXAMPLE, {})
    assert output.getvalue() == OUTPUT
    root = Path(__file__).parents[1]
    drawn = _png_text((root / "docs" / "images" / "sinc.png").read_bytes())
    assert drawn["Description"] + "\n" == output.getvalue()
    made = tmp_path / "sinc.png"
    command = [sys.executable, str(root / "examples" / "intervals" / "plot_sinc.py"), str(made)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True)
    assert printed.stdout == output.getvalue()
    assert _png_text(made.read_bytes())["Description"] == drawn["Description"]
