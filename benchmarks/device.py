"""Fits and predictions on a GPU, beside the CPU of the same machine and the limits of the device.

    python benchmarks/device.py [--device cuda] [--only NAME ...] [--scale 1.0] [--cpu]

Every line prints seconds of the wall clock (the second of two runs), what was asked for, the rate
of a plain copy or product of the same size in the same run, and the ratio to it. ``--scale .01``
is a rehearsal on small sizes; ``--cpu`` runs the same fits with NumPy where that takes minutes at
most. The rows are drawn on the device: a smooth part, steps (not for the RVM, which would keep
hundreds of functions for them), and noise.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from page import append
from sklearn.base import clone

from sparsebayes import ForwardRegressor, RVMRegressor, SparseGPRegressor

D = 8


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


WRITTEN: list[str] = []  # the file that rows are appended to, where one is named


def show(name: str, took: float, asked: float, note: str) -> None:
    """Print one line, and append it to the rows of the benchmark page where that is wanted."""
    print(f"{name:34s} {took:8.2f} s   asked {asked:5.1f}   {note}", flush=True)
    for path in WRITTEN:
        where = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "CPU"
        append(path, "scale", name.strip(), where, {"seconds": took})


def forward(n: int, m: int, k: int, dtype: Any, asked: float) -> Callable[..., None]:
    """Gram route: one pass over m columns of n rows, then k terms."""

    def measure(args: Any, rates: dict[str, float]) -> None:
        count = int(n * args.scale)
        X, y = rows(count, args.device, dtype)
        model = ForwardRegressor(
            "rbf", gamma=2.0, candidates=m, max_terms=k, early_stopping=None, refit="gp"
        )
        took, fitted = seconds(lambda: clone(model).fit(X, y), args.device)
        limit = 2.0 * count * m * m / rates["product"] + 6 * 8.0 * count * m / rates["copy"]
        name = f"forward n={count:.0e} m={m} k={k} {str(dtype)[6:]}"
        show(
            name, took, asked, f"{took / limit:.1f}x of the pass; {fitted.approximation_['route']}"
        )
        if args.cpu and count <= 10**6:
            A, b = X.cpu().numpy(), y.cpu().numpy()
            cpu, other = seconds(lambda: clone(model).fit(A, b), "cpu", 1)
            mean, std = fitted.predict(X[: 10**5], return_std=True)
            ours, spread = other.predict(A[: 10**5], return_std=True)
            off = float(np.max(np.abs(mean.cpu().numpy() - ours)) / np.std(b))
            wide = float(np.max(np.abs(std.cpu().numpy() / spread - 1.0)))
            gap = abs(fitted.log_evidence_ / other.log_evidence_ - 1.0)
            show("  the same on the CPU", cpu, 0.0, f"mean {off:.0e} sd, std {wide:.0e}, {gap:.0e}")

    return measure


def exact(args: Any, rates: dict[str, float]) -> None:
    """All rows as candidates: each term reads all kernel columns once."""
    n, k = int(1e5 * args.scale), 500
    X, y = rows(n, args.device, torch.float32)
    model = ForwardRegressor(
        "rbf", gamma=2.0, candidates="all", max_terms=k, early_stopping=None, regularization=1e-2
    )
    took, fitted = seconds(lambda: clone(model).fit(X, y), args.device)
    limit = k * 4.0 * n * n / rates["copy"]
    note = f"{took / limit:.1f}x of reading the columns; {fitted.approximation_['route']}"
    show(f"forward, all {n:.0e} rows, k={k}", took, 7.0, note)


def auto(args: Any, rates: dict[str, float]) -> None:
    """Widths, family, selection and refit, as a user would ask for it."""
    X, y = rows(int(1e5 * args.scale), args.device)
    took, fitted = seconds(lambda: ForwardRegressor("auto", gamma="ard").fit(X, y), args.device)
    show(f"auto n={len(X):.0e}", took, 12.0, f"{len(fitted.active_)} terms, {fitted.kernel_}")


def friedman(n: int, device: str) -> tuple[Any, Any]:
    """Friedman's first target, in five of eight inputs, with noise of variance 1."""
    X, _ = rows(n, device)
    y = 10 * torch.sin(torch.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    generator = torch.Generator(device=device).manual_seed(1)
    noise = torch.randn(n, generator=generator, device=device, dtype=torch.float64)
    return X, y + 10 * X[:, 3] + 5 * X[:, 4] + noise


def rvm(n: int, asked: float, smooth: bool = False) -> Callable[..., None]:
    """The RVM with all rows as candidates: a kernel so narrow that hundreds stay, or a wide one."""

    def measure(args: Any, rates: dict[str, float]) -> None:
        count = int(n * args.scale)
        X, y = friedman(count, args.device) if smooth else rows(count, args.device, steps=False)
        model = RVMRegressor("rbf", gamma=0.375 if smooth else 2.0)
        took, fitted = seconds(lambda: clone(model).fit(X, y), args.device, 1 + smooth)
        note = f"{len(fitted.active_)} functions, {fitted.stop_reason_}"
        show(f"RVM n={count:.0e}{' friedman' * smooth}", took, asked, note)
        if args.cpu and count <= 10**4:
            A, b = X.cpu().numpy(), y.cpu().numpy()
            cpu, other = seconds(lambda: clone(model).fit(A, b), "cpu", 1)
            gap = fitted.log_evidence_ - other.log_evidence_
            show("  the same on the CPU", cpu, 0.0, f"evidence {gap:+.1e} nats")

    return measure


def predictions(args: Any, rates: dict[str, float]) -> None:
    """Mean and std of many rows."""
    X, y = rows(int(1e7 * args.scale), args.device)
    few = min(len(X), 10**5)
    model = ForwardRegressor("rbf", gamma=2.0, candidates=600, max_terms=300, early_stopping=None)
    model.fit(X[:few], y[:few])
    took, _ = seconds(lambda: model.predict(X, return_std=True), args.device)
    show(f"predict {len(X):.0e} rows with std", took, 2.0, f"{len(model.active_)} functions")
    A = X.cpu().numpy()
    model.set_params(device=args.device)
    took, _ = seconds(lambda: model.predict(A, return_std=True), args.device)
    show("  of a NumPy array", took, 2.0, "copied to the device and back")


def neighbours(args: Any, rates: dict[str, float]) -> None:
    """64 neighbours of each new row among many: all distances, and small systems in batches."""
    n = int(1e5 * args.scale)
    X, y = rows(2 * n, args.device)
    model = SparseGPRegressor("matern32", gamma=1.0, max_terms=300, neighbours=64)
    took, _ = seconds(lambda: model.fit(X[:n], y[:n]), args.device, 1)
    show(f"64 neighbours of {n:.0e} rows: fit", took, 60.0, f"{len(model.active_)} functions")
    took, (mean, std) = seconds(lambda: model.predict(X[n:], return_std=True), args.device)
    note = f"{n / took:.0f} rows a second"
    show(f"  predict {n:.0e} rows with std", took, 0.5e-3 * n, note)
    few = slice(n, n + 2000)
    A = X[few].cpu().numpy()
    took, (here, spread) = seconds(lambda: model.predict(A, return_std=True), "cpu", 1)
    off = np.abs(mean[:2000].cpu().numpy() - here) / float(y.std())
    wide = np.abs(std[:2000].cpu().numpy() / spread - 1.0)
    gap = f"mean {np.median(off):.0e} sd, at most {off.max():.0e}; std {wide.max():.0e}"
    show("  2,000 of them on the CPU", took, 1.0, f"{len(A) / took:.0f} rows a second; {gap}")


def variational(args: Any, rates: dict[str, float]) -> None:
    """A stochastic variational process of GPyTorch in the time that our fit takes, and in ten."""
    import gpytorch as gp

    n = int(1e5 * args.scale)
    X, y = rows(n + 10**4, args.device)
    new, truth = X[n:], y[n:]
    X, y = X[:n], y[:n]
    took, fitted = seconds(lambda: ForwardRegressor("auto", gamma="ard").fit(X, y), args.device)

    def error(mean: Any) -> float:
        return float(((mean - truth) ** 2).mean().sqrt() / truth.std())

    show("auto beside it", took, 12.0, f"error {error(fitted.predict(new)):.4f} sd of the target")

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
        note = f"error {error(mean):.4f}, {steps} steps of 1,024 rows, 500 inducing points"
        show(f"  SVGP, {times}x the time", times * took, 0.0, note)


WORK = {
    "million": forward(10**6, 1000, 500, torch.float64, 3.0),
    "four": forward(4 * 10**6, 1000, 500, torch.float32, 6.0),
    "ten": forward(10**7, 1000, 500, torch.float32, 15.0),
    "exact": exact,
    "auto": auto,
    "rvm4": rvm(10**4, 1.5),
    "friedman4": rvm(10**4, 1.5, smooth=True),
    "friedman5": rvm(10**5, 20.0, smooth=True),
    "rvm5": rvm(10**5, 20.0),
    "predict": predictions,
    "neighbours": neighbours,
    "svgp": variational,
}


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="+", choices=WORK, default=list(WORK))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--write", metavar="FILE", help="append rows of the benchmark page")
    args = parser.parse_args()
    WRITTEN.extend([args.write] if args.write else [])
    name = torch.cuda.get_device_name(0) if args.device.startswith("cuda") else "CPU"
    print(f"torch {torch.__version__} on {name}", flush=True)
    rates = limits(args.device)
    for only in args.only:
        WORK[only](args, rates)


if __name__ == "__main__":
    main()
