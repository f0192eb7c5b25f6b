import html
import re
import shutil
import subprocess
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from sparsebayes import table_model
from sparsebayes.cli import main, report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(0)
    n = 120
    frame = pd.DataFrame(
        {
            "size": rng.uniform(0, 10, n),
            "a rather long name of a column": rng.standard_normal(n),
            "colour": rng.choice(["red", "green <b>", "$blue$"], n),
        }
    )
    frame["price"] = np.sin(frame["size"]) + (frame["colour"] == "red")
    frame["price"] += 0.1 * rng.standard_normal(n)
    frame.loc[::9, "size"] = np.nan
    path = tmp_path_factory.mktemp("report") / "houses.csv"
    frame.to_csv(path, index=False)
    return path


def _page(table, name, *options):
    report = table.with_name(name)
    command, *others = options
    assert main([command, str(table), "--report", str(report), "--cv", "2", *others]) == 0
    return report.read_text()


@pytest.fixture(scope="module")
def numbers(table):
    models = ["--models", "forward,bayesian-ridge,baseline", "--set", "gamma=ard"]
    return _page(table, "n.html", "compare", "--target", "price", *models)


@pytest.fixture(scope="module")
def classes(table):
    out = str(table.with_name("m.skops"))
    return _page(table, "c.html", "fit", "--target", "colour", "--output", out)


def _headings(page):
    return re.findall(r"<h2>(.*?)</h2>", page)


def test_the_report_of_numbers_has_all_parts(numbers):
    assert _headings(numbers) == [
        "Scores on held-out rows",
        "Predictions and calibration",
        "Which inputs matter",
        "Effects of single columns",
        "Basis functions",
        "Number of terms",
        "The table",
        "Settings",
        "In Python",
    ]
    assert "2 folds: each row is predicted by a model fitted without it" in numbers
    assert 'class="best"' in numbers
    assert ">±" not in numbers
    assert "colour=red" in numbers
    assert "<td>seed</td><td>0</td>" in numbers
    assert "scikit-learn" in numbers
    assert (
        "table_model(&#39;regression&#39;, model=&#39;forward&#39;, gamma=&#39;ard&#39;)" in numbers
    )


def test_rows_that_the_report_makes_are_not_warned_of(tmp_path, capsys):
    # Permuted columns break the correlation, and effects are drawn between the values of subjects.
    rng = np.random.default_rng(0)
    a, subject = rng.uniform(0, 1000, 160), np.arange(160) % 16
    frame = pd.DataFrame({"metres": a, "feet": 3.28 * a + rng.normal(0, 20, 160)})
    frame["batch"] = rng.uniform(0, 1, 16)[subject]
    frame["y"] = a / 300 + rng.standard_normal(16)[subject]
    frame["y"] += 0.1 * rng.standard_normal(160)
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = ["fit", "--target", "y", "--output", str(tmp_path / "m.skops")]
    _page(tmp_path / "t.csv", "r.html", *options)
    shown = capsys.readouterr().err
    assert "rows have" not in shown
    assert "rows are" not in shown


def test_a_log_target_is_reported_in_its_own_units(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, 80)
    frame = pd.DataFrame({"x": x, "y": np.exp(3.0 * x + 2.0 * rng.standard_normal(80))})
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = ["--set", "target_transform=log", "--model", "linear"]
    page = _page(tmp_path / "t.csv", "r.html", "fit", "--target", "y", *options)
    assert "Effects of single columns" in page
    assert "SparseTargetTransform(" in page


def test_the_report_of_classes_has_reliability_and_confusion(classes):
    headings = _headings(classes)
    assert "Predicted probabilities" in headings
    assert "Confusion matrix" in headings
    assert "predicted probability" in classes
    assert "skops.io.load(" in classes


def test_a_report_is_one_file_and_text_of_the_table_is_text(numbers, classes):
    for page in (numbers, classes):
        assert not re.search(r"(src|href)=\"(?!#|data:)", page)
        assert "<b>" not in page
        assert "green &lt;b&gt;" in page


def test_the_lines_for_python_run_as_printed_and_fit_the_same_model(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, 80)
    frame = pd.DataFrame({"key": np.arange(80), "x": x, "junk": rng.standard_normal(80)})
    frame["price"] = np.sin(x) + 0.1 * rng.standard_normal(80)
    frame.loc[[3, 21], "price"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False, sep=";", decimal=",", na_rep="?")
    options = ["--id", "key", "--drop", "junk", "--set", "gamma=0.5", "--model", "forward"]
    page = _page(tmp_path / "t.csv", "r.html", "fit", "--target", "price", *options)
    (lines,) = re.findall(r"<h2>In Python</h2>\s*<pre>(.*?)</pre>", page, re.DOTALL)
    found = {}
    exec(html.unescape(lines), found)  # as the report says
    assert found["model"].get_feature_names_out().tolist() == ["x"]
    assert found["model"].final_.gamma == 0.5
    assert found["model"].score(found["table"], found["table"]["price"]) > 0.9


def test_the_lines_for_python_of_the_demo_run_as_printed(tmp_path):
    report = tmp_path / "r.html"
    for task in ("regression", "classification"):
        command = ["demo", "--task", task, "--models", "linear", "--cv", "2"]
        assert main([*command, "--report", str(report)]) == 0
        page = report.read_text()
        (lines,) = re.findall(r"<h2>In Python</h2>\s*<pre>(.*?)</pre>", page, re.DOTALL)
        names = {}
        exec(html.unescape(lines), names)
        assert names["model"].task_ == task


def test_effects_of_a_transformed_target_have_bands():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(1, 2, 40)})
    y = np.exp(frame["x"] + 0.1 * rng.standard_normal(40))
    own = table_model(model="linear", target_transform="log").fit(frame, y)
    std = report._function_std(own, frame)
    assert np.all(std > 0)
    assert np.all(std < own.predict(frame, return_std=True)[1])
    ridge = table_model(model="bayesian-ridge").fit(frame, y)
    assert report._function_std(ridge, frame) is None


def test_effects_have_bands_where_the_noise_depends_on_the_inputs(numbers):
    assert "Bands are 95 % credible intervals" in numbers
    section = numbers[numbers.index("<h2>Effects") : numbers.index("<h2>Basis functions")]
    assert "FillBetweenPolyCollection" in section or "PolyCollection" in section


def test_reliability_has_bins_of_equal_size_and_is_right_for_calibrated_probabilities():
    from sparsebayes.cli.report import reliability

    rng = np.random.default_rng(0)
    probability = rng.uniform(size=20_000)
    occurred = (rng.uniform(size=20_000) < probability).astype(float)
    predicted, observed, error = reliability(probability, occurred)
    assert len(predicted) == 10
    assert np.all(np.abs(predicted - observed) < 4.0 * error)
    assert len(reliability(probability[:50], occurred[:50])[0]) == 2


def test_large_numbers_on_axes_are_short():
    from sparsebayes.cli.report import make_figure, svg

    figure, ax = make_figure()
    ax.plot([0, 500_000], [0, 1])
    page = str(svg(figure))
    assert "400k" in page
    assert "400000" not in page


def test_terms_are_named_by_their_rows_and_zero_is_zero(numbers, table):
    assert not re.search(r">-?\d\.\d+e-(1[2-9]|[2-9]\d)<", numbers)
    section = numbers[numbers.index("<h2>Basis functions") :]
    head = re.findall(r"<th>(.*?)</th>", section)
    cells = re.findall(r"<td>(.*?)</td>", section)[: head.index("column")]
    shown = dict(zip(head, cells, strict=False))
    row = pd.read_csv(table).iloc[int(shown["row"]) - 1]
    assert shown["colour"].replace("&lt;", "<").replace("&gt;", ">") == row["colour"]
    assert shown["size"] == ("missing" if np.isnan(row["size"]) else f"{row['size']:.4g}")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_falls_off_the_page_in_a_browser(numbers, classes, width, scheme, tmp_path):
    for page in (numbers, classes):
        if scheme == "dark":  # as a browser in the dark would read it
            page = page.replace("(prefers-color-scheme: dark)", "all")
        seen = _seen(page, width, tmp_path)
        assert seen["scroll"] <= width
        assert seen["narrowest"] > 250  # a figure one can read
        assert seen["contrast"] > 7  # of text to paper, 7 is the best grade of WCAG


def _seen(page, width, folder):
    """What a browser says of a page in a frame of this width."""
    escaped = page.replace("&", "&amp;").replace('"', "&quot;")
    outer = folder / "outer.html"
    outer.write_text(
        f'<iframe id=f width={width} height=900 style="border:0" srcdoc="{escaped}"></iframe>'
        """<pre id=out></pre><script>
        f.onload = () => {
          const d = f.contentDocument, s = f.contentWindow.getComputedStyle(d.body);
          const light = c => { const v = c.match(/\\d+/g).slice(0, 3).map(x => x / 255)
              .map(x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
            return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2] + 0.05; };
          const a = light(s.color), b = light(s.backgroundColor);
          const widths = [...d.querySelectorAll("figure svg")].map(
            e => e.getBoundingClientRect().width);
          out.textContent = ["scroll", d.documentElement.scrollWidth, "narrowest",
            Math.min(...widths), "contrast", Math.max(a, b) / Math.min(a, b)].join(" ");
        };</script>""",
        encoding="utf-8",
    )
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=5000",
    ]
    done = subprocess.run(
        [*command, "--dump-dom", outer.as_uri()], capture_output=True, text=True, timeout=60
    )
    words = re.search(r'<pre id="out">(.*?)</pre>', done.stdout).group(1).split()
    return dict(zip(words[::2], map(float, words[1::2]), strict=True))


def test_the_effect_of_a_count_is_drawn_at_its_values(monkeypatch):
    rng = np.random.default_rng(0)
    rooms, area = rng.integers(1, 6, 60), rng.uniform(50, 100, 60)
    frame = pd.DataFrame({"rooms": rooms, "area": area})
    target = pd.Series(area + rooms, name="price")
    model = table_model(model="linear").fit(frame, target)
    drawn = []
    monkeypatch.setattr(report, "_draw_effect", lambda ax, model, rows, grid: drawn.append(grid))
    report._effects(model, SimpleNamespace(frame=frame), ["rooms", "area"])
    np.testing.assert_array_equal(drawn[0], [1, 2, 3, 4, 5])
    assert len(drawn[1]) == 60
