"""The types of ours that a fitted model may hold, for ``skops.io.load(path, trusted=...)``."""

TRUSTED_TYPES = [
    "sparsebayes.designs._basis.CentredBasis",
    "sparsebayes.designs._basis.ColumnBasis",
    "sparsebayes.designs._basis.KernelBasis",
    "sparsebayes.estimators.rvm.RVMRegressor",
    "sparsebayes.kernels.PairwiseKernel",
    "sparsebayes.kernels.StationaryKernel",
    "sparsebayes.posterior.GaussianPosterior",
]
