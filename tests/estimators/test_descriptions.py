"""Descriptions that base classes give to the docstrings of their subclasses."""

import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from numpydoc.docscrape import NumpyDocString

import sparsebayes
from sparsebayes.estimators._summary import Summary


class Base(Summary):
    """Base of two models.

    Parameters
    ----------
    tol : float
        Smallest gain of a step.
    depth : int
        Depth of the tree.

    Attributes
    ----------
    path_ : list
        Steps, the first first.
    size_ : int
        Number of steps.
    """


def test_parameters_left_out_are_described_in_the_order_of_the_signature():
    class Model(Base):
        """A model.

        Parameters
        ----------
        own : int, default=2
            Described here.

            In two paragraphs.

        Attributes
        ----------
        size_

        Notes
        -----
        A note.
        """

        def __init__(self, depth=3, own=2, tol="auto"):
            pass

    assert Model.__doc__ == (
        "A model.\n\nParameters\n----------\ndepth : int, default=3\n    Depth of the tree.\n"
        "own : int, default=2\n    Described here.\n\n    In two paragraphs.\n"
        'tol : float, default="auto"\n    Smallest gain of a step.\n\n'
        "Attributes\n----------\nsize_ : int\n    Number of steps.\n\nNotes\n-----\nA note."
    )


def test_a_description_continues_that_of_the_base_class():
    class Model(Base):
        """A model.

        Parameters
        ----------
        tol
            ... In nats.

        Attributes
        ----------
        path_ : list or None
            ... None if
            there is none.
        size_, path_ : tuple
            Both.
        """

        def __init__(self, tol=1.0):
            pass

    class Child(Model):
        """A child, whose default differs.

        Parameters
        ----------
        tol
        """

        def __init__(self, tol=2.0):
            pass

    assert "tol : float, default=1.0\n    Smallest gain of a step.\n    In nats." in Model.__doc__
    assert "path_ : list or None\n    Steps, the first first.\n    None if\n" in Model.__doc__
    assert "size_, path_ : tuple\n    Both." in Model.__doc__
    assert "tol : float, default=2.0\n    Smallest gain of a step.\n    In nats." in Child.__doc__


def test_classes_without_a_docstring_or_without_sections_are_left_alone():
    class Bare(Base):
        def __init__(self, tol=1.0):
            pass

    class Words(Base):
        """Nothing but words."""

    assert Bare.__doc__ is None
    assert Words.__doc__ == "Nothing but words."


def test_estimators_work_without_docstrings():
    code = (
        "from sparsebayes import RVMRegressor as R; print(R.__doc__, R().fit([[0], [1]], [0, 1]))"
    )
    run = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True)
    assert run.stdout.startswith("None RVMRegressor"), run.stderr


def test_no_description_is_written_twice():
    folder = Path(sparsebayes.__file__).parent / "estimators"
    places = defaultdict(set)
    for path in folder.glob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if not isinstance(node, ast.ClassDef) or not ast.get_docstring(node):
                continue
            docstring = NumpyDocString(ast.get_docstring(node))
            for title in ("Parameters", "Attributes"):
                for entry in docstring[title]:
                    if len(entry.desc) > 1:
                        places[entry.name, " ".join(entry.desc)].add(node.name)
    repeated = {name: sorted(where) for (name, _), where in places.items() if len(where) > 1}
    assert not repeated


@pytest.mark.parametrize("name", ["RVMRegressor", "SparseGPClassifier", "GroupARDRegressor"])
def test_no_docstring_has_an_open_continuation(name):
    assert "\n    ..." not in getattr(sparsebayes, name).__doc__
