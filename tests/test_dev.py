"""The pure parts of dev.py; installing is tested by running it in a fresh clone."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import conftest
import dev
import sparsebayes


@pytest.fixture
def checkout(tmp_path):
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "pyproject.toml").write_text("[project]\n")
    return root


def test_key_changes_with_pyproject_python_and_place(checkout, tmp_path, monkeypatch):
    key = dev.environment_key(checkout)
    assert key == dev.environment_key(checkout)
    moved = tmp_path / "moved"
    moved.mkdir()
    (moved / "pyproject.toml").write_text("[project]\n")
    assert dev.environment_key(moved) != key
    with monkeypatch.context() as patch:
        patch.setattr(dev.platform, "python_version", lambda: "3.99.0")
        assert dev.environment_key(checkout) != key
    (checkout / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert dev.environment_key(checkout) != key


def test_stamp_comes_back_as_written_and_serves_fewer_extras_but_not_more(tmp_path):
    dev.write_stamp(tmp_path, "key", {"test", "report"})
    stamp = dev.read_stamp(tmp_path)
    assert dev.is_current(stamp, "key", {"test"})
    assert not dev.is_current(stamp, "key", {"test", "bench"})
    assert not dev.is_current(stamp, "another key", {"test"})


@pytest.mark.parametrize("text", [None, "", "{", "[]"])
def test_missing_or_broken_stamp_means_install(tmp_path, text):
    if text is not None:
        (tmp_path / "dev-stamp.json").write_text(text)
    assert not dev.is_current(dev.read_stamp(tmp_path), "key", set())


@pytest.fixture
def machine(checkout, monkeypatch):
    """A checkout whose venv and pip are pretended; records the commands, pip fails when told."""
    state = {"commands": [], "pip": 0}

    def run(command, env=None, quiet=False):
        words = [str(word) for word in command]
        state["commands"].append(words)
        if "venv" in words:
            python = dev.venv_python(dev.VENV)
            python.parent.mkdir(parents=True, exist_ok=True)
            python.touch()
        return state["pip"] if "install" in words else 0

    monkeypatch.setattr(dev, "ROOT", checkout)
    monkeypatch.setattr(dev, "VENV", checkout / ".venv")
    monkeypatch.setattr(dev, "run", run)
    return state


def test_second_install_does_nothing_until_pyproject_changes(machine, checkout):
    dev.install({"test"})
    assert any("install" in words for words in machine["commands"])
    machine["commands"].clear()
    dev.install({"test"})
    assert machine["commands"] == []
    (checkout / "pyproject.toml").write_text("changed")
    dev.install({"test"})
    assert any("install" in words for words in machine["commands"])
    assert not any("venv" in words for words in machine["commands"])


def test_new_extra_is_added_to_those_already_there(machine):
    dev.install({"test"})
    dev.install({"report"})
    assert dev.read_stamp(dev.VENV)["extras"] == ["report", "test"]
    assert machine["commands"][-1][-1].endswith("[report,test]")


def test_failed_first_install_leaves_no_venv(machine):
    machine["pip"] = 1
    with pytest.raises(dev.DevError, match="install failed"):
        dev.install({"test"})
    assert not dev.VENV.exists()


def test_failed_update_is_done_again_next_time(machine, checkout):
    dev.install({"test"})
    (checkout / "pyproject.toml").write_text("changed")
    machine["pip"] = 1
    with pytest.raises(dev.DevError, match="install failed"):
        dev.install({"test"})
    assert dev.read_stamp(dev.VENV) == {}
    machine["pip"] = 0
    dev.install({"test"})
    assert dev.read_stamp(dev.VENV)["extras"] == ["test"]


def test_another_python_makes_a_new_venv(machine):
    dev.install({"test"})
    stamp = dev.VENV / "dev-stamp.json"
    stamp.write_text(json.dumps({**json.loads(stamp.read_text()), "key": "", "python": "3.1"}))
    machine["commands"].clear()
    dev.install({"test"})
    assert "venv" in machine["commands"][0]


def test_data_beside_the_checkout_are_found_unless_the_variable_says_otherwise(checkout):
    assert "SPARSEBAYES_DATA" not in dev.command_environment(checkout, {})
    data = checkout.parent / "shared" / "data"
    data.mkdir(parents=True)
    assert dev.command_environment(checkout, {})["SPARSEBAYES_DATA"] == str(data)
    chosen = dev.command_environment(checkout, {"SPARSEBAYES_DATA": "elsewhere"})
    assert chosen["SPARSEBAYES_DATA"] == "elsewhere"


def test_arguments_of_test_go_to_pytest_with_one_blas_thread(machine, monkeypatch):
    seen = {}

    def run(command, env=None, quiet=False):
        if "pytest" in command:
            seen.update(command=command, env=env)
        return 0

    for name in dev.ONE_THREAD:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(dev, "run", run)
    assert dev.test(["-k", "rvm"]) == 0
    assert seen["command"][-4:] == ["-n", "2", "-k", "rvm"]
    assert seen["env"]["OPENBLAS_NUM_THREADS"] == "1"


def test_arguments_of_papers_go_to_the_package_of_that_name(machine):
    assert dev.papers(["lrols", "--quick"]) == 0
    assert machine["commands"][-1][1:] == ["-m", "papers", "lrols", "--quick"]


@pytest.mark.parametrize("failing", ["format", "check", "mypy", "pytest"])
def test_any_failing_step_fails_the_test_command_and_pytest_runs_all_the_same(
    machine, monkeypatch, failing
):
    ran = []

    def run(command, env=None, quiet=False):
        ran.append(command)
        return int(failing in command)

    monkeypatch.setattr(dev, "run", run)
    assert dev.test([]) != 0
    assert "pytest" in ran[-1]


@pytest.mark.parametrize(("words", "status"), [(["nonsense"], 1), ([], 2), (["--help"], 0)])
def test_unknown_or_no_command_is_explained_without_installing(words, status):
    script = Path(dev.__file__)
    done = subprocess.run(
        [sys.executable, script, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == status
    assert "demo" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_lowest_dependencies_are_those_of_pyproject():
    text = (Path(dev.__file__).parent / "pyproject.toml").read_text("utf-8")
    found = dev.lowest(text)
    assert {"numpy==1.26.*", "scipy==1.15.*", "scikit-learn==1.7.*"} <= set(found)
    assert not [line for line in found if line.startswith(("ruff", "pytest"))]


def test_package_says_what_it_takes():
    with pytest.raises(dev.DevError, match="--lowest or --newest"):
        dev.package([])


def test_version_and_citation_agree():
    root = Path(dev.__file__).parent
    citation = (root / "CITATION.cff").read_text("utf-8")
    assert f"version: {sparsebayes.__version__}\n" in citation


def test_no_test_is_skipped_for_want_of_a_package_of_the_test_extra():
    root = Path(dev.__file__).parent
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    extra = {
        re.split(r"[\[>=<]", line)[0].replace("-", "_")
        for line in project["optional-dependencies"]["test"]
    }
    skipped = {
        name.partition(".")[0]
        for path in (root / "tests").rglob("*.py")
        for name in re.findall(r'importorskip\("([\w.]+)"', path.read_text("utf-8"))
    }
    assert skipped
    assert not skipped & extra, "import these: an incomplete environment must fail"
    assert skipped <= {*conftest.OPTIONAL, "sklearn"}, "name them in conftest.OPTIONAL"
