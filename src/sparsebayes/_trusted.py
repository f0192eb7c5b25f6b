"""The types of ours that a fitted model may hold, for ``skops.io.load(path, trusted=...)``."""

TRUSTED_TYPES = [
    "sparsebayes.designs._basis.CentredBasis",
    "sparsebayes.designs._basis.ColumnBasis",
    "sparsebayes.designs._basis.KernelBasis",
    "sparsebayes.designs.compressed.CompressedDesign",
    "sparsebayes.estimators._base.Problem",
    "sparsebayes.estimators._chosen.Chosen",
    "sparsebayes.estimators.forward.ForwardRegressor",
    "sparsebayes.estimators.forward_cv.ForwardRegressorCV",
    "sparsebayes.estimators.lrols.ErrorReductionTable",
    "sparsebayes.estimators.lrols.OrthogonalLeastSquaresRegressor",
    "sparsebayes.estimators.rvm.RVMRegressor",
    "sparsebayes.kernels.PairwiseKernel",
    "sparsebayes.kernels.StationaryKernel",
    "sparsebayes.posterior.GaussianPosterior",
    "sparsebayes.solvers._path.Noise",
    "sparsebayes.solvers._path.Path",
    "sparsebayes.solvers._refit.Outside",
]
