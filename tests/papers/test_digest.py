"""The digest of a paper's code changes with that code and with nothing else."""

import ast
import hashlib
import json
from pathlib import Path

import pytest

from papers import PAPERS, digest, load_paper


def test_prose_and_formatting_are_not_part_of_the_code():
    before = '"""One."""\n\nimport os  # why\n\n\ndef f(x):\n    """Two."""\n    return "#" * x\n'
    after = "import os\ndef f(x: int) -> str:\n    '''A\n    b.'''\n"
    after += '    # c\n    return (\n"#" * x)\n'
    assert digest.code(before) == digest.code(after)
    assert digest.code(before) != digest.code(before.replace("* x", "* 2"))
    assert digest.code(before) != digest.code(before.replace('"#"', '"+"'))


def test_annotations_of_variables_are_not_part_of_the_code():
    before = "def f(x):\n    y = 2 * x\n    return y\n"
    assert digest.code(before) == digest.code(before.replace("y =", "y: float ="))
    field = "class A:\n    x = 1\n"
    assert digest.code(field) != digest.code(field.replace("x =", "x: int ="))


def test_the_text_of_errors_and_warnings_is_not_part_of_the_code():
    before = 'if x > 1:\n    raise ValueError(f"x is {x}")\nwarnings.warn("large", UserWarning)\n'
    after = before.replace("x is {x}", "got {x}, which is too large").replace('large"', 'big"')
    assert digest.code(before) == digest.code(after)
    assert digest.code(before) != digest.code(before.replace("x > 1", "x > 2"))
    assert digest.code(before) != digest.code(before.replace("ValueError", "TypeError"))


SOURCE = """
class A(Base, kind=1):
    x: int = 3

    @property
    async def f(self, a, /, b=1.5, *c, d: str = "\\u00e9", **e) -> int:
        with open(a) as f, b:
            text = f"{a!r:>{b}.{d}} and {{c}} {c:.3g}" "more" f"{e}{d=}"
        try:
            return [*c, lambda z: z**-2.0, {**e}, {1, 2}, (i for i in c if i), ...]
        except (KeyError, ValueError):
            pass
        match a:
            case [1, *_] | {"k": None, **rest} if b:
                del rest[1:2, ...]
        return (y := a) if b is not None else await a @ b
"""


def test_the_digest_is_the_same_for_all_versions_of_python():
    found = hashlib.sha256(digest.code(SOURCE).encode()).hexdigest()
    assert found[:8] == "78a7eda5"  # of 3.11, 3.12.1 and 3.13


def test_where_an_f_string_is_cut_does_not_matter():
    # Python 3.12.1 puts an empty text after the last value of a nested format.
    tree = ast.parse('f"a{x:{y}}b"')
    before = digest._dump(tree)
    (format_spec,) = [n.format_spec for n in ast.walk(tree) if getattr(n, "format_spec", None)]
    format_spec.values.append(ast.Constant(""))
    (whole,) = [n for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) and n is not format_spec]
    whole.values[0:1] = [ast.Constant(""), ast.Constant("a")]
    assert digest._dump(tree) == before
    assert digest._dump(ast.parse('f"a{x:{y}}"')) != before
    assert digest._dump(ast.parse('f"a{x:{y}}c"')) != before


def test_imports_are_followed_to_the_module_that_defines_a_name():
    source = "from . import kernel\nfrom .. import RVMRegressor\n"
    source += "def f():\n    import sparsebayes.priors\n"
    found = set(digest.imported(source, "sparsebayes.designs.dense"))
    assert found == {
        "sparsebayes.designs.kernel",
        "sparsebayes.estimators.rvm",
        "sparsebayes.priors",
    }
    assert not set(digest.imported("import numpy\nfrom papers import frame\n", "papers.x"))


def test_a_paper_depends_on_its_own_method_and_not_on_those_of_others():
    modules = {name: digest.sources(f"papers.{module}") for name, module in PAPERS.items()}
    own = {
        "forward": "sparsebayes.solvers.forward.selection",
        "lrols": "sparsebayes.solvers.ols.selection",
        "group": "sparsebayes.solvers.group.ep",
        "backfitting": "sparsebayes.solvers.backfitting.smoothers",
    }
    for name, module in own.items():
        assert module in modules[name]
        assert all(other not in modules[name] for other in set(own.values()) - {module}), name
    assert all("sparsebayes.designs.kernel" in found for found in modules.values())
    drawing = [m for found in modules.values() for m in found if m.startswith("sparsebayes.dis")]
    assert drawing == []


def test_modules_that_no_experiment_executes_are_not_part_of_the_code(monkeypatch, tmp_path):
    monkeypatch.setattr(digest, "UNUSED", tmp_path / "unused.json")
    module = "papers.chen2001"
    cell = load_paper("lrols")[0].tables[0].cells(True)[0]
    with digest.executed_modules() as executed:
        cell.run()
    assert "sparsebayes.solvers.ols.selection" in executed
    assert "sparsebayes.labels" not in executed
    digest.record({module: executed}, whole=True)
    left_out = digest.unused(module)
    assert {"sparsebayes.labels", "sparsebayes.solvers.gp.neighbours"} <= left_out
    assert not {module, "sparsebayes.solvers.ols.selection"} & left_out
    # A part of the tables may find that more is executed, never that less is.
    digest.record({module: {"sparsebayes.labels"}}, whole=False)
    assert digest.unused(module) == left_out - digest.needed({"sparsebayes.labels"})
    digest.code_digest.cache_clear()


def test_constants_and_base_classes_count_as_executed():
    found = digest.needed({"sparsebayes.estimators.lrols"})
    assert "sparsebayes.estimators._base" in found
    assert "sparsebayes.labels" not in found


def test_the_recorded_modules_exist_and_leave_out_the_code_of_labels():
    recorded = json.loads(digest.UNUSED.read_text("utf-8"))
    assert set(recorded) == {f"papers.{module}" for module in PAPERS.values()}
    for module, names in recorded.items():
        assert "sparsebayes.labels" in names, module
        assert module not in names


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("priors.py", False),
        ("labels.py", False),
        ("solvers/ols/selection.py", True),
        ("kernels/formulas.py", True),
    ],
)
def test_the_digest_changes_with_the_code_that_a_paper_uses(monkeypatch, path, changes):
    compute = digest.code_digest.__wrapped__
    before = compute("papers.chen2001")
    read = Path.read_text

    def edited(self, *args):
        text = read(self, *args)
        return f"{text}\nedit = 1\n" if self.as_posix().endswith(f"sparsebayes/{path}") else text

    monkeypatch.setattr(Path, "read_text", edited)
    assert (compute("papers.chen2001") != before) is changes
