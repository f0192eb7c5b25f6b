"""Fits and predictions on a GPU, beside NumPy on the same machine.

    python benchmarks/device.py [--device cuda] [--only NAME ...] [--scale 1.0]

Every line prints seconds of the wall clock (the second of two runs); the seconds of NumPy with all
cores, one run, where that takes a minute at most; how far the two models are apart, as the largest
difference of predicted means over the standard deviation of the target and of predicted standard
deviations relative to each other; and what was fitted. ``--scale .01`` is a rehearsal on small
sizes. The rows are drawn on the device: a smooth part, steps (not for the RVM, which would keep
hundreds of functions for them), and noise. The lines in `ON_PAGE` are those of the benchmark page
(``suite.py --sections device``).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from sklearn.base import clone

from sparsebayes import ForwardRegressor, RVMRegressor, SparseGPRegressor

D = 8
Scores = dict[str, float]
Work = Callable[[str, float], tuple[Scores, str]]  # device and scale: scores, and a note


def rows(
    n: int, device: str, dtype: Any = torch.float64, *, steps: bool = True, seed: int = 0
) -> tuple[Any, Any]:
    """X uniform in eight inputs, y with a smooth part, steps (where wanted) and noise."""
    generator = torch.Generator(device=device).manual_seed(seed)
    X = torch.rand((n, D), generator=generator, device=device, dtype=dtype)
    y = torch.sin(6 * X[:, 0]) * X[:, 1] + (X[:, 2] - 0.5) ** 2 + 0.3 * steps * (X[:, 3] > 0.6)
    y = y + 0.3 * y.std() * torch.randn(n, generator=generator, device=device, dtype=dtype)
    return X, y


def seconds(work: Callable[[], Any], device: str, repeat: int = 2) -> tuple[float, Any]:
    """The wall clock of the last of `repeat` runs, and what it returned."""
    for _ in range(repeat):
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        start = time.perf_counter()
        result = work()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        took = time.perf_counter() - start
    return took, result


@cache
def limits(device: str) -> dict[str, float]:
    """Bytes of a copy and float64 flops of a product, per second."""
    size = 2**28 if device.startswith("cuda") else 2**24
    a = torch.ones(size, dtype=torch.float64, device=device)
    copy = 16.0 * size / seconds(a.clone, device, 4)[0]
    k = 8192 if device.startswith("cuda") else 1024
    b = torch.ones((k, k), dtype=torch.float64, device=device)
    product = 2.0 * k**3 / seconds(lambda: b @ b, device, 4)[0]
    print(f"copy {copy / 1e9:.0f} GB/s, float64 product {product / 1e12:.2f} TFLOP/s", flush=True)
    return {"copy": copy, "product": product}


def beside_numpy(model: Any, fitted: Any, X: Any, y: Any) -> Scores:
    """Fit a copy with NumPy: its seconds, and how far means and standard deviations are apart."""
    A, b = X.cpu().numpy(), y.cpu().numpy()
    took, other = seconds(lambda: clone(model).fit(A, b), "cpu", 1)
    few = slice(0, 10**5)
    return {"NumPy": took} | apart(
        fitted.predict(X[few], return_std=True), other.predict(A[few], return_std=True), b
    )


def apart(there: tuple[Any, Any], here: tuple[Any, Any], target: np.ndarray) -> Scores:
    """Largest difference of means over the sd of the target, and of stds relative to each other."""
    mean, std = (part.cpu().numpy() for part in there)
    return {
        "difference": float(np.max(np.abs(mean - here[0])) / np.std(target)),
        "std difference": float(np.max(np.abs(std / here[1] - 1.0))),
    }


def forward(n: int, m: int, k: int, dtype: Any, compare: bool = False) -> Work:
    """Gram route: one pass over m columns of n rows, then k terms."""

    def run(device: str, scale: float) -> tuple[Scores, str]:
        count, rates = int(n * scale), limits(device)
        X, y = rows(count, device, dtype)
        model = ForwardRegressor(
            "rbf", gamma=2.0, candidates=m, max_terms=k, early_stopping=None, refit="gp"
        )
        took, fitted = seconds(lambda: clone(model).fit(X, y), device)
        limit = 2.0 * count * m * m / rates["product"] + 6 * 8.0 * count * m / rates["copy"]
        scores = {"seconds": took} | (beside_numpy(model, fitted, X, y) if compare else {})
        return scores, f"{took / limit:.1f}x of the pass; {fitted.approximation_['route']}"

    return run


def exact(device: str, scale: float) -> tuple[Scores, str]:
    """All rows as candidates: each term reads all kernel columns once."""
    n, k = int(1e5 * scale), 500
    X, y = rows(n, device, torch.float32)
    model = ForwardRegressor(
        "rbf", gamma=2.0, candidates="all", max_terms=k, early_stopping=None, regularization=1e-2
    )
    took, fitted = seconds(lambda: clone(model).fit(X, y), device)
    limit = k * 4.0 * n * n / limits(device)["copy"]
    note = f"{took / limit:.1f}x of reading the columns; {fitted.approximation_['route']}"
    return {"seconds": took}, note


def auto(device: str, scale: float) -> tuple[Scores, str]:
    """Widths, family, selection and refit, as a user would ask for it."""
    X, y = rows(int(1e5 * scale), device)
    model = ForwardRegressor("auto", gamma="ard")
    took, fitted = seconds(lambda: clone(model).fit(X, y), device)
    scores = {"seconds": took} | beside_numpy(model, fitted, X, y)
    return scores, f"{len(fitted.active_)} terms, {fitted.kernel_}"


def friedman(n: int, device: str) -> tuple[Any, Any]:
    """Friedman's first target, in five of eight inputs, with noise of variance 1."""
    X, _ = rows(n, device)
    y = 10 * torch.sin(torch.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    generator = torch.Generator(device=device).manual_seed(1)
    noise = torch.randn(n, generator=generator, device=device, dtype=torch.float64)
    return X, y + 10 * X[:, 3] + 5 * X[:, 4] + noise


def rvm(n: int, smooth: bool = False, compare: bool = False) -> Work:
    """The RVM with all rows as candidates: a kernel so narrow that hundreds stay, or a wide one."""

    def run(device: str, scale: float) -> tuple[Scores, str]:
        count = int(n * scale)
        X, y = friedman(count, device) if smooth else rows(count, device, steps=False)
        model = RVMRegressor("rbf", gamma=0.375 if smooth else 2.0)
        took, fitted = seconds(lambda: clone(model).fit(X, y), device, 1 + smooth)
        scores = {"seconds": took} | (beside_numpy(model, fitted, X, y) if compare else {})
        return scores, f"{len(fitted.active_)} functions, {fitted.stop_reason_}"

    return run


def predictions(copied: bool) -> Work:
    """Mean and std of many rows, which are on the device or are copied there and back."""

    def run(device: str, scale: float) -> tuple[Scores, str]:
        X, y = rows(int(1e7 * scale), device)
        few = min(len(X), 10**5)
        settings = {"candidates": 600, "max_terms": 300, "early_stopping": None}
        model = ForwardRegressor("rbf", gamma=2.0, **settings).fit(X[:few], y[:few])
        A = X.cpu().numpy()
        if copied:
            model.set_params(device=device)
            took, _ = seconds(lambda: model.predict(A, return_std=True), device)
            return {"seconds": took}, f"{len(model.active_)} functions"
        took, there = seconds(lambda: model.predict(X, return_std=True), device)
        slow, here = seconds(lambda: model.predict(A, return_std=True), "cpu", 1)
        scores = {"seconds": took, "NumPy": slow} | apart(there, here, y.cpu().numpy())
        return scores, f"{len(model.active_)} functions"

    return run


def neighbours(device: str, scale: float) -> tuple[Scores, str]:
    """64 neighbours of each new row among many: all distances, and small systems in batches."""
    n = int(1e5 * scale)
    X, y = rows(2 * n, device)
    model = SparseGPRegressor("matern32", gamma=1.0, max_terms=300, neighbours=64)
    fitting, _ = seconds(lambda: model.fit(X[:n], y[:n]), device, 1)
    took, there = seconds(lambda: model.predict(X[n:], return_std=True), device)
    few = min(n, 2000)
    A = X[n : n + few].cpu().numpy()
    slow, here = seconds(lambda: model.predict(A, return_std=True), "cpu", 1)
    there = there[0][:few], there[1][:few]
    note = f"fit {fitting:.1f} s; {n / took:.0f} rows a second, NumPy {few / slow:.0f}"
    return {"seconds": took} | apart(there, here, y.cpu().numpy()), note


def variational(device: str, scale: float) -> tuple[Scores, str]:
    """A stochastic variational process of GPyTorch in the time that our fit takes, and in ten."""
    import gpytorch as gp

    n = int(1e5 * scale)
    X, y = rows(n + 10**4, device)
    new, truth = X[n:], y[n:]
    X, y = X[:n], y[:n]
    took, fitted = seconds(lambda: ForwardRegressor("auto", gamma="ard").fit(X, y), device)

    def error(mean: Any) -> float:
        return float(((mean - truth) ** 2).mean().sqrt() / truth.std())

    note = f"error {error(fitted.predict(new)):.4f} sd of the target"

    class Process(gp.models.ApproximateGP):  # type: ignore[misc]
        def __init__(self, Z: Any) -> None:
            q = gp.variational.CholeskyVariationalDistribution(len(Z))
            super().__init__(gp.variational.VariationalStrategy(self, Z, q))
            self.mean_module = gp.means.ConstantMean()
            self.covar_module = gp.kernels.ScaleKernel(gp.kernels.MaternKernel(2.5, ard_num_dims=D))

        def forward(self, x: Any) -> Any:
            """The prior at x."""
            return gp.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    A, b = X.float(), ((y - y.mean()) / y.std()).float()
    for times in (1, 10):
        torch.manual_seed(0)
        model = Process(A[torch.randperm(n, device=A.device)[:500]]).to(A.device)
        likelihood = gp.likelihoods.GaussianLikelihood().to(A.device)
        loss = gp.mlls.VariationalELBO(likelihood, model, n)
        optimiser = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.02)
        start, steps = time.perf_counter(), 0
        while time.perf_counter() - start < times * took:
            some = torch.randint(0, n, (1024,), device=A.device)
            optimiser.zero_grad()
            (-loss(model(A[some]), b[some])).backward()
            optimiser.step()
            steps += 1
        model.eval()
        with torch.no_grad():
            mean = model(new.float()).mean.double() * y.std() + y.mean()
        note += f"; SVGP in {times}x the time {error(mean):.4f}, {steps} steps of 1,024 rows"
    return {"seconds": took}, note


WORK: dict[str, tuple[str, Work]] = {
    "million": (
        "forward selection, 10^6 rows, 500 of 1,000 functions",
        forward(10**6, 1000, 500, torch.float64, compare=True),
    ),
    "ten": (
        "forward selection, 10^7 rows in float32, 500 of 1,000 functions",
        forward(10**7, 1000, 500, torch.float32),
    ),
    "exact": ("forward selection, 10^5 rows in float32, 500 of all functions", exact),
    "auto": ("forward selection, 10^5 rows, all settings by evidence", auto),
    "friedman4": ("RVM, 10^4 rows", rvm(10**4, smooth=True, compare=True)),
    "friedman5": ("RVM, 10^5 rows", rvm(10**5, smooth=True)),
    "predict": ("mean and std of 10^7 rows, 300 functions", predictions(copied=False)),
    "copied": ("the same from a NumPy array and back", predictions(copied=True)),
    "rvm4": ("RVM with a narrow kernel, 10^4 rows", rvm(10**4, compare=True)),
    "rvm5": ("RVM with a narrow kernel, 10^5 rows", rvm(10**5)),
    "neighbours": ("64 neighbours of each of 10^5 rows", neighbours),
    "svgp": ("beside a variational process, 10^5 rows", variational),
}
ON_PAGE = ("million", "ten", "exact", "auto", "friedman4", "friedman5", "predict", "copied")


def measure(name: str, device: str, scale: float = 1.0) -> Scores:
    """Run one line, print it, and return its scores."""
    label, run = WORK[name]
    scores, note = run(device, scale)
    numbers = ", ".join(f"{key} {value:.3g}" for key, value in scores.items())
    print(f"{label}: {numbers}; {note}", flush=True)
    return scores


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="+", choices=WORK, default=list(WORK))
    parser.add_argument("--scale", type=float, default=1.0)
    args = parser.parse_args()
    name = torch.cuda.get_device_name(0) if args.device.startswith("cuda") else "CPU"
    print(f"torch {torch.__version__} on {name}", flush=True)
    for only in args.only:
        measure(only, args.device, args.scale)


if __name__ == "__main__":
    main()
