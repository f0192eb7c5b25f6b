"""Configuration of the site: ``python3 dev.py docs`` builds it offline; warnings are errors."""

import inspect
import os
import re
import tomllib
import types
import warnings
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx_gallery.sorting import ExplicitOrder

import sparsebayes

os.environ.setdefault("MPLBACKEND", "Agg")

project = "sparsebayes"
author = "sparsebayes developers"
copyright = "the sparsebayes developers"
version = release = sparsebayes.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
root_doc = "index"
exclude_patterns = [
    "_build",
    "**/.ipynb_checkpoints",
    "sg_execution_times.rst",
    "**/sg_execution_times.rst",
]
templates_path = ["_templates"]
default_role = "code"
nitpicky = False
html_math_renderer = "mathml"

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
suppress_warnings = ["config.cache"]

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

html_theme = "pydata_sphinx_theme"
html_title = "sparsebayes"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "show_toc_level": 2,
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
_PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))
if repository := _PROJECT["project"].get("urls", {}).get("Repository"):
    html_theme_options["github_url"] = repository
html_sidebars = {"index": [], "start": [], "changelog": [], "benchmarks": []}


# The gallery by question: folders of examples, in the order of the page.
_SECTIONS = {
    "intervals": ("sinc", "noise_by_input", "calibration", "outliers"),
    "inputs": ("widths", "additive_curves", "groups", "credible_sets", "sequential_design"),
    "accuracy": ("compare", "terms", "steps", "neighbours"),
    "classes": ("boundary", "digits"),
    "scale": ("million", "dask", "partitions", "text"),
    "systems": ("free_run", "term_table", "to_c"),
}

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": "/plot_",
    "ignore_pattern": r"^_",
    "subsection_order": ExplicitOrder([f"../examples/{name}" for name in _SECTIONS]),
    "within_subsection_order": ExplicitOrder(
        [f"plot_{name}.py" for names in _SECTIONS.values() for name in names]
    ),
    "capture_repr": (),
    "thumbnail_size": (480, 336),
    "nested_sections": False,
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "min_reported_time": 5,
    "plot_gallery": os.environ.get("SPARSEBAYES_GALLERY", "run") != "skip",
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "doc_module": ("sparsebayes",),
    "backreferences_dir": "generated/used",
}
warnings.filterwarnings("ignore", message=".*FigureCanvasAgg is non-interactive.*")


# Formulas become MathML, which browsers draw themselves: no script, no font, nothing to fetch. The
# converter is that of docutils; what it does not know is said in words that it knows.
_WORDS = (
    (r"\\gt(?![a-zA-Z])", ">"),
    (r"\\lt(?![a-zA-Z])", "<"),
    (r"\\dots(?![a-zA-Z])", r"\\ldots"),
    (r"\\textstyle(?![a-zA-Z])", ""),
    (r"\\([td]?)frac(\d)(\d)", r"\\\1frac{\2}{\3}"),
)


def _mathml(tex, block):
    for pattern, word in _WORDS:
        tex = re.sub(pattern, word, tex)
    return str(tex2mathml(tex, as_block=block))


def _visit_math(self, node):
    self.body.append(_mathml(node.astext(), block=False))
    raise nodes.SkipNode


def _visit_math_block(self, node):
    self.body.append(f'<div class="math">{_mathml(node.astext(), block=True)}</div>\n')
    raise nodes.SkipNode


def _own_members_only(app, what, name, obj, skip, options):
    """Leave out what scikit-learn gives every estimator, and the methods of str and int."""
    if isinstance(obj, types.MethodDescriptorType | types.BuiltinFunctionType):
        return True
    home = getattr(inspect.unwrap(obj) if callable(obj) else obj, "__module__", "") or ""
    return True if home.partition(".")[0] in ("sklearn", "skrub") else None


def _bars_are_bars(app, what, name, obj, options, lines):
    """``|x|`` in a sentence is a length, not a substitution."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            lines[i] = re.sub(r"(`+[^`]*`+)|\|", lambda m: m.group(1) or r"\|", line)


def _forget_former_pages():
    """Remove pages of earlier builds whose example or name no longer exists."""
    here = Path(__file__).parent
    gallery, examples = here / "gallery", here.parent / "examples"
    for page in gallery.rglob("plot_*.rst"):
        if not (examples / page.relative_to(gallery).with_suffix(".py")).exists():
            page.unlink()
    listed = (here / "api.rst").read_text("utf-8")
    for page in (here / "generated").glob("*.rst"):
        if f"   {page.stem.removeprefix('sparsebayes.')}\n" not in listed:
            page.unlink()


def setup(app):
    """Formulas and members."""
    _forget_former_pages()
    app.add_html_math_renderer(
        "mathml", inline_renderers=(_visit_math, None), block_renderers=(_visit_math_block, None)
    )
    app.connect("autodoc-skip-member", _own_members_only)
    app.connect("autodoc-process-docstring", _bars_are_bars, priority=100)  # before numpydoc
