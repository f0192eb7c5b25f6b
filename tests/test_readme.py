import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_readme_example_runs_and_keeps_few_functions_and_the_true_noise(capsys):
    example = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert example is not None
    names: dict = {}
    exec(example.group(1), names)
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
