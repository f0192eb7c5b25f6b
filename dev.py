#!/usr/bin/env python3
"""The project's commands, for a machine that has only python3 and pip.

    python3 dev.py demo               compare models on an embedded data set, write report.html
    python3 dev.py test [ARGS...]     format, lint and type checks, then pytest (ARGS go to pytest)
    python3 dev.py lint               the checks alone
    python3 dev.py bench NAME [ARGS]  run benchmarks/NAME.py; without NAME, list them
    python3 dev.py bench-page         write docs/benchmarks.md from docs/benchmarks.jsonl
    python3 dev.py papers [PAPER|all] [--quick] [--report FILE] [ARGS]
                                      run the tables and figures of the papers and compare them with
                                      the printed values; --help lists the papers and options
    python3 dev.py docs [--no-run]    build the site into docs/_build/html, warnings are errors, and
                                      check its links; --no-run leaves the examples unexecuted
    python3 dev.py package --lowest | --newest [ARGS...]
                                      build sdist and wheel into dist, and run the tests of the
                                      sdist (ARGS go to pytest) on the wheel, in an environment with
                                      the oldest or newest versions that pyproject.toml allows

The first run makes `.venv` in the checkout and installs the project there, editable, with what the
command needs. Later runs install again only when pyproject.toml, the Python version or the place of
the checkout has changed. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
OLDEST_PYTHON = (3, 11)
EXTRAS = {
    "demo": {"cli"},
    "test": {"test"},
    "lint": {"test"},
    "bench": {"bench", "plot"},
    "bench-page": set(),
    "papers": {"plot"},
    "docs": {"docs", "cli", "dask"},
    "package": set(),
}
# One BLAS thread per pytest worker: two workers with two threads each fight for two cores.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class DevError(Exception):
    """A failure that one sentence explains."""


def venv_python(venv: Path) -> Path:
    if os.name == "nt":
        return venv / "Scripts" / "python.exe"
    return venv / "bin" / "python"


def environment_key(root: Path) -> str:
    """Hash of all that makes an installed environment out of date."""
    parts = (platform.python_implementation(), platform.python_version(), str(root))
    return hashlib.sha256(
        "\n".join(parts).encode() + (root / "pyproject.toml").read_bytes()
    ).hexdigest()


def read_stamp(venv: Path) -> dict:
    """What the last complete install recorded; empty when there was none."""
    try:
        stamp = json.loads((venv / "dev-stamp.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(venv: Path, key: str, extras: set[str]) -> None:
    stamp = {"key": key, "python": platform.python_version(), "extras": sorted(extras)}
    (venv / "dev-stamp.json").write_text(json.dumps(stamp), encoding="utf-8")


def is_current(stamp: dict, key: str, extras: set[str]) -> bool:
    return stamp.get("key") == key and extras <= set(stamp.get("extras", ()))


def run(command: list, env: dict | None = None, quiet: bool = False) -> int:
    output = subprocess.DEVNULL if quiet else None
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=ROOT, env=env, stdout=output, stderr=output).returncode


def pip_environment() -> dict:
    """The caller's settings (index, proxy, certificates), less those that lead out of the venv."""
    dropped = {"PYTHONHOME", "PYTHONPATH", "PIP_USER", "PIP_TARGET", "PIP_PREFIX"}
    env = {name: value for name, value in os.environ.items() if name not in dropped}
    env["PIP_REQUIRE_VIRTUALENV"] = "0"
    env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    return env


def outer_pip() -> list | None:
    """A pip outside the venv: this Python's own, or the one on the path."""
    on_path = [shutil.which(name) for name in ("pip3", "pip")]
    candidates = [[sys.executable, "-m", "pip"]] + [[found] for found in on_path if found]
    env = pip_environment()
    return next((pip for pip in candidates if run([*pip, "--version"], env, quiet=True) == 0), None)


def pip_for(python: Path) -> list:
    """The start of a pip command that installs into the venv of `python`."""
    env = pip_environment()
    inner = [python, "-m", "pip"]
    for bring_pip in (None, [python, "-m", "ensurepip", "--default-pip"]):
        if bring_pip:
            run(bring_pip, env, quiet=True)
        if run([*inner, "--version"], env, quiet=True) == 0:
            return inner
    # Debian's python3 without python3-venv has no ensurepip: take a pip from outside.
    outer = outer_pip()
    if outer is None:
        raise DevError(
            f"There is no pip for {sys.executable}. Install it first, for instance with "
            "'apt install python3-pip' or from https://pip.pypa.io/en/stable/installation/."
        )
    if run([*outer, "--python", python, "--version"], env, quiet=True) == 0:
        return [*outer, "--python", python]
    # Older than 22.3, without --python: let it unpack a new pip into the venv.
    query = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.check_output([str(python), "-c", query], text=True).strip()
    if run([*outer, "install", "--quiet", "--target", site, "pip"], env) != 0:
        raise DevError(f"{' '.join(outer)} could not fetch pip for {VENV}; its words are above.")
    return inner


def make_venv() -> None:
    # Without pip at first: `venv` alone gives up where ensurepip is missing.
    if run([sys.executable, "-m", "venv", "--clear", "--without-pip", VENV]) != 0:
        raise DevError(
            f"{sys.executable} could not make a virtual environment in {VENV}. "
            "On Debian or Ubuntu install 'python3-venv'."
        )


def install(extras: set[str]) -> None:
    """Bring `.venv` up to date; the stamp is written last, so a failed install is done again."""
    key = environment_key(ROOT)
    stamp = read_stamp(VENV)
    python = venv_python(VENV)
    if python.exists() and is_current(stamp, key, extras):
        return
    same_python = stamp.get("python", platform.python_version()) == platform.python_version()
    fresh = not (python.exists() and same_python)
    (VENV / "dev-stamp.json").unlink(missing_ok=True)
    wanted = extras if fresh else extras | set(stamp.get("extras", ()))
    try:
        if fresh:
            make_venv()
        extra = f"[{','.join(sorted(wanted))}]" if wanted else ""
        say(f"installing sparsebayes{extra} into {VENV.name} (once)")
        requirement = f"{ROOT}{extra}"
        pip = pip_for(python)
        if run([*pip, "install", "--quiet", "--editable", requirement], pip_environment()) != 0:
            raise DevError(
                "The install failed; pip's words are above. It needs a package index: check the "
                "network (or the proxy, or PIP_INDEX_URL) and run the same command again."
            )
    except BaseException:
        if fresh:
            shutil.rmtree(VENV, ignore_errors=True)
        raise
    write_stamp(VENV, key, wanted)


def command_environment(root: Path, environ: dict) -> dict:
    """The environment of the project's own commands: data sets beside the checkout are found."""
    env = dict(environ)
    data = root.parent / "shared" / "data"
    if not env.get("SPARSEBAYES_DATA") and data.is_dir():
        env["SPARSEBAYES_DATA"] = str(data)
    return env


def demo(args: list[str]) -> int:
    env = command_environment(ROOT, dict(os.environ))
    return run([venv_python(VENV), "-m", "sparsebayes", "demo", *args], env)


def lint(args: list[str]) -> int:
    """All checks, also after one has failed, so that one run shows everything."""
    if args:
        raise DevError(f"'lint' takes no arguments, got: {' '.join(args)}.")
    python = venv_python(VENV)
    checks = {
        "ruff format (cure: .venv/bin/ruff format .)": ["ruff", "format", "--check", "."],
        "ruff check": ["ruff", "check", "."],
        "mypy": ["mypy"],
    }
    failed = []
    for name, words in checks.items():
        say(" ".join(words))
        if run([python, "-m", *words]) != 0:
            failed.append(name)
    if failed:
        say("failed: " + "; ".join(failed))
    return 1 if failed else 0


def test(args: list[str]) -> int:
    lint_status = lint([])
    env = command_environment(ROOT, dict(os.environ))
    for name in ONE_THREAD:
        env.setdefault(name, "1")
    env.setdefault("MPLBACKEND", "Agg")
    say("pytest")
    pytest_status = run([venv_python(VENV), "-m", "pytest", "-n", "2", *args], env)
    if lint_status:
        say("the format, lint or type checks failed: see above pytest's output")
    return pytest_status or lint_status


def bench(args: list[str]) -> int:
    folder = ROOT / "benchmarks"
    names = sorted(path.stem for path in folder.glob("[!_]*.py"))
    if not args or args[0] not in names:
        given = f"There is no benchmark {args[0]!r}. " if args else ""
        raise DevError(f"{given}Benchmarks: {', '.join(names) or 'none yet'}.")
    env = command_environment(ROOT, dict(os.environ))
    return run([venv_python(VENV), folder / f"{args[0]}.py", *args[1:]], env)


def bench_page(args: list[str]) -> int:
    return run([venv_python(VENV), ROOT / "benchmarks" / "page.py", *args])


def papers(args: list[str]) -> int:
    env = command_environment(ROOT, dict(os.environ))
    return run([venv_python(VENV), "-m", "papers", *args], env)


def docs(args: list[str]) -> int:
    if args not in ([], ["--no-run"]):
        raise DevError(f"'docs' takes --no-run or nothing, got: {' '.join(args)}.")
    source, site = ROOT / "docs", ROOT / "docs" / "_build" / "html"
    env = command_environment(ROOT, dict(os.environ))
    if args:
        env["SPARSEBAYES_GALLERY"] = "skip"
    python = venv_python(VENV)
    options = ["-W", "--keep-going", "-q", "-b", "html"]
    status = run([python, "-m", "sphinx", *options, source, site], env)
    status = status or run([python, source / "check_links.py", site])
    say(f"open {site / 'index.html'}" if status == 0 else "the site has faults: see above")
    return status


def lowest(pyproject: str) -> list[str]:
    """Requirements at the oldest versions that the required and the test dependencies allow.

    Tools that only check the code (ruff, mypy, pytest, ...) are left at their newest.
    """
    import tomllib  # not there before Python 3.11, and that is said elsewhere

    project = tomllib.loads(pyproject)["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    tools = {"ruff", "mypy", "pytest", "pytest-xdist", "hypothesis", "numpydoc"}
    pairs = [requirement.split(">=") for requirement in wanted]
    return [f"{name}=={oldest}.*" for name, oldest in pairs if name not in tools]


def package(args: list[str]) -> int:
    if args[:1] not in (["--lowest"], ["--newest"]):
        raise DevError("'package' takes --lowest or --newest first, then arguments of pytest.")
    dist, python = ROOT / "dist", venv_python(VENV)
    shutil.rmtree(dist, ignore_errors=True)
    pip = [*pip_for(python), "install", "--quiet"]
    if run([*pip, "build", "twine"], pip_environment()) != 0:
        raise DevError("build and twine could not be installed; pip's words are above.")
    for words in (["build", "--outdir", dist, ROOT], ["twine", "check", "--strict"]):
        files = [] if words[0] == "build" else sorted(dist.iterdir())
        if run([python, "-m", *words, *files], pip_environment()) != 0:
            raise DevError(f"{words[0]} found a fault: see above.")
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        if run([sys.executable, "-m", "venv", "--without-pip", home / "venv"]) != 0:
            raise DevError("No virtual environment could be made for the wheel.")
        inside = venv_python(home / "venv")
        limits = lowest((ROOT / "pyproject.toml").read_text("utf-8")) if "--lowest" in args else []
        say(f"installing {wheel.name} with {args[0][2:]} dependencies")
        words = [*pip_for(inside), "install", "--quiet", f"{wheel}[test]", *limits]
        if run(words, pip_environment()) != 0:
            raise DevError("The wheel could not be installed; pip's words are above.")
        shutil.unpack_archive(sdist, home)
        (unpacked,) = home.glob("sparsebayes-*")
        shutil.rmtree(unpacked / "src")  # what is tested is the wheel
        env = command_environment(ROOT, dict(os.environ))
        env |= {"MPLBACKEND": "Agg", **{name: env.get(name, "1") for name in ONE_THREAD}}
        say(f"pytest of {sdist.name}")
        command = [inside, "-m", "pytest", "tests", *args[1:]]
        return subprocess.run([str(w) for w in command], cwd=unpacked, env=env).returncode


COMMANDS = {
    "demo": demo,
    "test": test,
    "lint": lint,
    "bench": bench,
    "bench-page": bench_page,
    "papers": papers,
    "docs": docs,
    "package": package,
}


def say(sentence: str) -> None:
    print(f"dev.py: {sentence}", flush=True)


def main(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if argv else 2
    name, args = argv[0], argv[1:]
    try:
        if name not in COMMANDS:
            raise DevError(f"There is no command {name!r}. Commands: {', '.join(COMMANDS)}.")
        if sys.version_info < OLDEST_PYTHON:
            oldest = ".".join(map(str, OLDEST_PYTHON))
            raise DevError(
                f"Python {oldest} or newer is needed; this is {platform.python_version()}."
            )
        install(EXTRAS[name])
        return COMMANDS[name](args)
    except DevError as error:
        print(f"dev.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
