"""RVMClassifier compared with other packages: log-loss, accuracy, functions kept and CPU seconds.

    python benchmarks/rvm_classification.py [--quick] [--data NAME ...] [--splits N]

Breast cancer (400 rows to fit), digits (1,200 rows, 10 classes), two moons (1,000 rows) and
California above its median price (2,500 rows). Inputs standardised, Gaussian kernel with gamma =
1/(2 median^2) for everybody, the same splits, one thread. The other RVM is fastrvm (C++), with and
without its intercept; the regularisation of the logistic regression on Nystroem features is chosen
by cross-validation and the amplitude of the Gaussian process by evidence (on more than 1,500 rows
in the first split only). California comes from sparsebayes.datasets (SPARSEBAYES_DATA).

Limits, at the end: log-loss not worse than that of the best other RVM (mean over the splits), and a
tenth of fastrvm's time at n = 2,500. --quick takes one split and leaves out the Gaussian process on
more than 1,500 rows and fastrvm's intercept.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.datasets import load_breast_cancer, load_digits, make_moons
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # papers is beside this folder

from papers.data import load_california
from sparsebayes.estimators.rvm_classifier import RVMClassifier


def breast_cancer(seed):
    return *load_breast_cancer(return_X_y=True), 400


def digits(seed):
    return *load_digits(return_X_y=True), 1200


def moons(seed):
    return *make_moons(4000, noise=0.3, random_state=seed), 1000


def california(seed):
    X, y = load_california(return_X_y=True)
    rows = np.random.default_rng(seed).permutation(len(y))[:7500]
    return X[rows], (y > np.median(y)).astype(int)[rows], 2500


# Data set -> where it comes from, and how many splits a full run takes.
DATA = {
    "breast-cancer": (breast_cancer, 10),
    "moons": (moons, 5),
    "digits": (digits, 2),
    "california": (california, 2),
}
OTHER_RVMS = ("fastrvm", "fastrvm, intercept")


def split(source, seed):
    X, y, n = source(seed)
    X, X_test, y, y_test = train_test_split(X, y, train_size=n, random_state=seed, stratify=y)
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)
    return X, y, X_test, y_test, float(0.5 / np.median(pdist(X[:1000])) ** 2)


def models(gamma, with_process, quick):
    from fastrvm import RVC

    yield "RVMClassifier", RVMClassifier("rbf", gamma=gamma, random_state=0)
    yield "RVMClassifier, n_starts=1", RVMClassifier("rbf", gamma=gamma, n_starts=1, random_state=0)
    yield "RVMClassifier, heal", RVMClassifier("rbf", gamma=gamma, heal=True, random_state=0)
    yield "fastrvm", RVC(gamma=gamma)
    if not quick:
        yield "fastrvm, intercept", RVC(gamma=gamma, fit_intercept=True)
    yield "SVC", SVC(gamma=gamma, probability=True, random_state=0)
    if with_process:
        width = RBF(np.sqrt(0.5 / gamma), "fixed")
        yield "GaussianProcess", GaussianProcessClassifier(ConstantKernel(4.0, (1e-2, 1e4)) * width)
    features = Nystroem(gamma=gamma, n_components=300, random_state=0)
    logistic = LogisticRegressionCV(
        Cs=7, cv=3, scoring="neg_log_loss", max_iter=1000, random_state=0
    )
    yield "Nystroem-300 logistic", make_pipeline(features, logistic)


def n_functions(model):
    for name in ("active_", "relevance_", "support_"):
        if hasattr(model, name):
            return len(getattr(model, name))
    return np.nan


def measure(model, X, y, X_test, y_test):
    started = time.process_time()
    model.fit(X, y)
    seconds = time.process_time() - started
    P = model.predict_proba(X_test)
    labels = np.unique(y)
    accuracy = accuracy_score(y_test, labels[np.argmax(P, axis=1)])
    evidence = getattr(model, "log_evidence_", np.nan)
    scores = getattr(model, "scores_", None)
    if scores is not None and not callable(scores) and not isinstance(scores, dict):
        evidence = scores[-1]
    return log_loss(y_test, P, labels=labels), accuracy, n_functions(model), evidence, seconds


def table(name, n_splits, quick):
    source, _ = DATA[name]
    found: dict[str, list] = {}
    for seed in range(n_splits):
        X, y, X_test, y_test, gamma = split(source, seed)
        with_process = len(X) <= 1500 or (seed == 0 and not quick)
        for label, model in models(gamma, with_process, quick):
            found.setdefault(label, []).append(measure(model, X, y, X_test, y_test))
    print(f"\n{name}: {len(X)} rows, {len(np.unique(y))} classes, {n_splits} splits")
    print(
        f"{'model':<26} {'log-loss':>9} {'accuracy':>9} {'functions':>9} {'evidence':>9} "
        f"{'CPU s':>8} {'of fastrvm':>10}"
    )
    means = {label: np.mean(rows, axis=0) for label, rows in found.items()}
    for label, (loss, accuracy, k, evidence, seconds) in means.items():
        ratio = seconds / means["fastrvm"][-1]
        print(
            f"{label:<26} {loss:>9.4f} {accuracy:>9.4f} {k:>9.1f} {evidence:>9.1f} "
            f"{seconds:>8.3f} {ratio:>10.3f}"
        )
    return means


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=list(DATA))
    parser.add_argument("--splits", type=int)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for _, model in models(1.0, True, True):  # the first call of anything is slow
        model.fit(*make_moons(60, random_state=0))
    verdicts = []
    for name in arguments.data:
        n_splits = arguments.splits or (1 if arguments.quick else DATA[name][1])
        means = table(name, n_splits, arguments.quick)
        ours = means["RVMClassifier"]
        other = min(means[label][0] for label in OTHER_RVMS if label in means)
        verdicts.append((f"{name}: log-loss of the best other RVM", ours[0] / other, 1.0))
        if name == "california":
            verdicts.append((f"{name}: time of fastrvm", ours[-1] / means["fastrvm"][-1], 0.1))
    print("\nours as a fraction of                                  is   limit")
    for what, ratio, limit in verdicts:
        said = "" if ratio <= limit else "   MISSED"
        print(f"{what:<50} {ratio:>7.3f} {limit:>7.2f}{said}")


if __name__ == "__main__":
    main()
