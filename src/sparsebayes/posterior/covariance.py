"""The forms that the covariance V of the weights can take.

Each form knows four things about the functions Phi w, w ~ N(0, V), and how it changes with the
units of the target: `variance` (the diagonal of Phi V Phi'), `between` (all of it), `multiply`
(V U) and `draw` (draws of Phi w). None of them forms V unless it is that small already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

import numpy as np

from .._array import Array, PerTarget, asarray_like, is_torch
from ..linalg.blocks import ColumnBlocks

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_AT_ONCE = 2**18  # entries of the likelihoods of models whose moments are computed together


class Covariance(Protocol):
    """The covariance V of the weights, in one of its forms.

    `independent` is True if V is diagonal, `is_mixture` if the weights are a mixture over models
    with `components`, and `is_sample` that V is that of draws.
    """

    independent: ClassVar[bool]
    is_mixture: ClassVar[bool]
    is_sample: ClassVar[bool]

    def variance(self, Phi: Array) -> np.ndarray:
        """Return the variance of Phi w at each row."""

    def between(self, Phi: Array) -> np.ndarray:
        """Return the covariance of Phi w between rows."""

    def multiply(self, U: np.ndarray) -> np.ndarray:
        """Return V U for U of shape (k,) or (k, m)."""

    def draw(self, Phi: Array, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Return draws of Phi w, shape (len(Phi), n_samples)."""

    def rescaled(self, scale: PerTarget) -> Self:
        """Return the form of the weights of a target `scale` times as large."""


class _Form:
    """Traits of the forms, where they have no others."""

    independent: ClassVar[bool] = False
    is_mixture: ClassVar[bool] = False
    is_sample: ClassVar[bool] = False


@dataclass(frozen=True)
class Dense(_Form):
    """The full matrix V = scale * root root'.

    Parameters
    ----------
    root : array of shape (k, r)
        Any root: a triangle, or a matrix of fewer or more columns than rows.
    scale : float or array of shape (n_outputs,)
        The noise variance, usually. With several outputs each has its own multiple of root root',
        and results have a last axis (draws: the axis before the last) for them.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.posterior import Dense
    >>> Dense(np.array([[0.5]]), 4.0).variance(np.array([[1.0], [2.0]]))
    array([1., 4.])
    """

    root: np.ndarray
    scale: PerTarget = 1.0

    def variance(self, Phi: np.ndarray) -> np.ndarray:
        """Return the variance of Phi w at each row."""
        if is_torch(Phi):
            T = Phi @ asarray_like(Phi, self.root)
            return (T * T).sum(axis=1) * float(self.scale)
        T = Phi @ self.root
        return np.multiply.outer(np.einsum("ij,ij->i", T, T), self.scale)

    def between(self, Phi: np.ndarray) -> np.ndarray:
        """Return the covariance of Phi w between rows."""
        T = Phi @ self.root
        return np.multiply.outer(T @ T.T, self.scale)

    def multiply(self, U: np.ndarray) -> np.ndarray:
        """Return V U for U of shape (k,) or (k, m)."""
        return np.multiply.outer(self.root @ (self.root.T @ U), self.scale)

    def draw(self, Phi: np.ndarray, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Return draws of Phi w, shape (len(Phi), [n_outputs,] n_samples)."""
        shape = (self.root.shape[1], *np.shape(self.scale), n_samples)
        draws = np.tensordot(Phi @ self.root, rng.standard_normal(shape), axes=1)
        return np.sqrt(np.asarray(self.scale))[..., None] * draws

    def rescaled(self, scale: PerTarget) -> Self:
        """Return the form of the weights of a target `scale` times as large."""
        return replace(self, scale=self.scale * scale * scale)


@dataclass(frozen=True)
class Deferred(_Form):
    """The full matrix, formed when it is first used.

    Predictions at the mode of labels need no covariance, and that of thousands of weights takes
    longer than all the rest.

    Parameters
    ----------
    make : callable
        Returns the `Dense` form.
    scale : float or array of shape (n_outputs,)
        Factor of its matrix.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.posterior import Deferred, Dense
    >>> Deferred(lambda: Dense(np.array([[0.5]]))).variance(np.array([[2.0]]))
    array([1.])
    """

    make: Callable[[], Dense]
    scale: PerTarget = 1.0

    @cached_property
    def _dense(self) -> Dense:
        dense = self.make()
        return replace(dense, scale=dense.scale * self.scale)

    def __getstate__(self) -> dict[str, object]:
        """Leave out the matrix, which can be formed again."""
        return {"make": self.make, "scale": self.scale}

    def variance(self, Phi: np.ndarray) -> np.ndarray:
        """Return the variance of Phi w at each row."""
        return self._dense.variance(Phi)

    def between(self, Phi: np.ndarray) -> np.ndarray:
        """Return the covariance of Phi w between rows."""
        return self._dense.between(Phi)

    def multiply(self, U: np.ndarray) -> np.ndarray:
        """Return V U for U of shape (k,) or (k, m)."""
        return self._dense.multiply(U)

    def draw(self, Phi: np.ndarray, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Return draws of Phi w, shape (len(Phi), [n_outputs,] n_samples)."""
        return self._dense.draw(Phi, n_samples, rng)

    def rescaled(self, scale: PerTarget) -> Self:
        """Return the form of the weights of a target `scale` times as large."""
        return replace(self, scale=self.scale * scale * scale)


@dataclass(frozen=True)
class Diagonal(_Form):
    """Independent weights: V = scale * diag(root)^2.

    Parameters
    ----------
    root : array of shape (k,)
        Standard deviations over that of `scale`.
    scale : float
        The noise variance, usually.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.posterior import Diagonal
    >>> Diagonal(np.array([0.5]), 4.0).variance(np.array([[1.0], [2.0]]))
    array([1., 4.])
    """

    independent: ClassVar[bool] = True
    root: np.ndarray
    scale: PerTarget = 1.0

    def variance(self, Phi: Array) -> np.ndarray:
        """Return the variance of Phi w at each row."""
        return (Phi**2 @ self.root**2) * self.scale

    def between(self, Phi: Array) -> np.ndarray:
        """Return the covariance of Phi w between rows."""
        T = Phi * self.root
        return (T @ T.T) * self.scale

    def multiply(self, U: np.ndarray) -> np.ndarray:
        """Return V U for U of shape (k,) or (k, m)."""
        return ((self.root**2 * self.scale) * U.T).T

    def draw(self, Phi: Array, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Return draws of Phi w, shape (len(Phi), n_samples)."""
        white = rng.standard_normal((len(self.root), n_samples))
        return np.sqrt(self.scale) * ((Phi * self.root) @ white)

    def rescaled(self, scale: PerTarget) -> Self:
        """Return the form of the weights of a target `scale` times as large."""
        return replace(self, scale=self.scale * scale * scale)


@dataclass(frozen=True)
class BlockLowRank(_Form):
    """Blocks less a part of rank n: V = F (I - W'W) F', F block diagonal and W an n x d array.

    For more weights d than rows n. Memory O(n d). Where the noise is so low that the difference has
    no digits left W has orthonormal rows instead, and V is the sum F (I - W'W + W'S S'W) F'.

    Parameters
    ----------
    blocks : ColumnBlocks
        The blocks of F. Rows and columns of F and W follow its order, the weights the original one.
    half : list of arrays of shape (n_blocks, k, k)
        F' of each block.
    W : array of shape (n, d)
        Information of the n rows, in units of F.
    inside : array of shape (n, n), optional
        S, where W has orthonormal rows.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.linalg.blocks import column_blocks
    >>> from sparsebayes.posterior import BlockLowRank
    >>> blocks = column_blocks(np.array([0, 1]))
    >>> V = BlockLowRank(blocks, [np.ones((2, 1, 1))], np.array([[0.5, 0.0]]))
    >>> V.variance(np.eye(2))
    array([0.75, 1.  ])
    """

    blocks: ColumnBlocks
    half: list[np.ndarray]
    W: np.ndarray
    inside: np.ndarray | None = None

    def variance(self, Phi: np.ndarray) -> np.ndarray:
        """Return the variance of Phi w at each row."""
        more, less = self._parts(Phi)
        spread = np.einsum("ij,ij->i", more, more) - np.einsum("ij,ij->i", less, less)
        return np.maximum(spread, 0.0)

    def between(self, Phi: np.ndarray) -> np.ndarray:
        """Return the covariance of Phi w between rows."""
        more, less = self._parts(Phi)
        return more @ more.T - less @ less.T

    def multiply(self, U: np.ndarray) -> np.ndarray:
        """Return V U for U of shape (d,) or (d, m), in O(n d m)."""
        inner = self._whiten(U.T if U.ndim == 2 else U[None])
        along = inner @ self.W.T
        inner = inner - along @ self.W
        if self.inside is not None:
            inner += along @ self.inside @ self.inside.T @ self.W
        out = np.empty_like(inner)
        for bucket, F in zip(self.blocks.buckets, self.half, strict=True):
            at = slice(bucket.start, bucket.start + bucket.columns.size)
            parts = inner[:, at].reshape(len(inner), -1, bucket.size)
            out[:, bucket.columns] = np.einsum("gji,mgj->mgi", F, parts)
        return out.T if U.ndim == 2 else out[0]

    def draw(self, Phi: np.ndarray, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Return draws of Phi w, shape (len(Phi), n_samples)."""
        # u = u0 - W'(W u0 + R e) with R R' = I - W W' has covariance I - W'W; with orthonormal rows
        # and R = S it has I - W'W + W'S S'W.
        R = self.inside
        if R is None:
            values, vectors = np.linalg.eigh(np.eye(len(self.W)) - self.W @ self.W.T)
            R = vectors * np.sqrt(np.maximum(values, 0.0))
        u = rng.standard_normal((self.W.shape[1], n_samples))
        u -= self.W.T @ (self.W @ u + R @ rng.standard_normal((R.shape[1], n_samples)))
        return self._whiten(Phi) @ u

    def rescaled(self, scale: PerTarget) -> Self:
        """Return the form of the weights of a target `scale` times as large."""
        return replace(self, half=[F * scale for F in self.half])

    def _parts(self, Phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """P and M with Phi V Phi' = P P' - M M'; M is empty where V is a sum."""
        inner = self._whiten(Phi)
        along = inner @ self.W.T
        if self.inside is None:
            return inner, along
        return np.hstack([inner - along @ self.W, along @ self.inside]), np.zeros((len(Phi), 0))

    def _whiten(self, Phi: np.ndarray) -> np.ndarray:
        """Rows of Phi F, in bucket order."""
        out = np.empty(Phi.shape)
        for bucket, F in zip(self.blocks.buckets, self.half, strict=True):
            at = slice(bucket.start, bucket.start + bucket.columns.size)
            # One block of weights after the other: (n_blocks, k, k) @ (n_blocks, k, rows).
            parts = F @ np.moveaxis(Phi[:, bucket.columns], 0, -1)
            out[:, at] = parts.reshape(-1, len(Phi)).T
        return out


@dataclass(frozen=True)
class Draws(_Form):
    """The covariance of draws from a Markov chain.

    Parameters
    ----------
    draws : array or sparse array of shape (n_draws, d)
        Weights, one draw in each row.
    mean : array of shape (d,)
        The mean of the weights, which the chain may know better than the mean of the draws kept.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.posterior import Draws
    >>> Draws(np.array([[0.5], [1.5]]), np.array([1.0])).variance(np.array([[2.0]]))
    array([1.])
    """

    is_sample: ClassVar[bool] = True
    draws: np.ndarray | csr_array
    mean: np.ndarray

    def variance(self, Phi: np.ndarray) -> np.ndarray:
        """Return the variance of Phi w at each row."""
        return np.mean(self._deviations(Phi) ** 2, axis=0)

    def between(self, Phi: np.ndarray) -> np.ndarray:
        """Return the covariance of Phi w between rows."""
        D = self._deviations(Phi)
        return D.T @ D / len(D)

    def multiply(self, U: np.ndarray) -> np.ndarray:
        """Return V U for U of shape (d,) or (d, m)."""
        D = self.draws @ U - self.mean @ U
        return (self.draws.T @ D - np.multiply.outer(self.mean, D.sum(axis=0))) / len(D)

    def components(self, Phi: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the components of a mixture: each draw is a model without variance.

        See `ModelAverage.components`.
        """
        apart = self._deviations(Phi)
        return np.full(len(apart), 1.0 / len(apart)), apart, np.zeros(len(Phi))

    def draw(self, Phi: np.ndarray, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Return draws of Phi w, shape (len(Phi), n_samples), from those kept, with replacement."""
        chosen = rng.integers(self.draws.shape[0], size=n_samples)
        return self._deviations(Phi)[chosen].T

    def rescaled(self, scale: PerTarget) -> Self:
        """Return the form of the weights of a target `scale` times as large."""
        return replace(self, draws=self.draws * scale, mean=self.mean * scale)

    def _deviations(self, Phi: np.ndarray) -> np.ndarray:
        """Phi w of each draw less that of the mean, shape (n_draws, len(Phi))."""
        return np.asarray(self.draws @ Phi.T) - Phi @ self.mean


@dataclass(frozen=True)
class Revised(_Form):
    """A covariance after the distribution of a few weights U has become better known.

    EP treats every group on its own. Looking at several groups together gives a better mean and
    covariance of their weights; the others follow, because given those few weights nothing about
    them has changed. The weights are w + G (u - w_U): the former ones, those in U replaced by
    u ~ N(., R R'). With G = V[:, U] V[U, U]^-1 the others move as they are expected to when w_U
    becomes u, and the covariance is A V A' + G R R' G', A = I - G E', E the columns U of I.

    Parameters
    ----------
    base : Covariance
        The former form of V.
    columns : array of int of shape (k,)
        U.
    gain : array of shape (d, k)
        G.
    root : array of shape (k, k)
        R.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.posterior import Dense, Revised
    >>> gain = np.array([[1.0], [0.0]])
    >>> V = Revised(Dense(np.eye(2)), np.array([0]), gain, np.array([[2.0]]))
    >>> V.variance(np.eye(2))
    array([4., 1.])
    """

    base: Covariance
    columns: np.ndarray
    gain: np.ndarray
    root: np.ndarray

    def variance(self, Phi: np.ndarray) -> np.ndarray:
        """Return the variance of Phi w at each row."""
        kept, revised = self._split(Phi)
        return self.base.variance(kept) + np.sum((revised @ self.root) ** 2, axis=1)

    def between(self, Phi: np.ndarray) -> np.ndarray:
        """Return the covariance of Phi w between rows."""
        kept, revised = self._split(Phi)
        T = revised @ self.root
        return self.base.between(kept) + T @ T.T

    def multiply(self, U: np.ndarray) -> np.ndarray:
        """Return V U for U of shape (d,) or (d, m)."""
        kept, revised = self._split(U.T)
        VU = self.base.multiply(kept.T)
        VU = VU - self.gain @ VU[self.columns]
        return VU + self.gain @ (self.root @ (self.root.T @ revised.T))

    def draw(self, Phi: np.ndarray, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Return draws of Phi w, shape (len(Phi), n_samples)."""
        kept, revised = self._split(Phi)
        draws = self.base.draw(kept, n_samples, rng)
        return draws + revised @ (self.root @ rng.standard_normal((len(self.root), n_samples)))

    def rescaled(self, scale: PerTarget) -> Self:
        """Return the form of the weights of a target `scale` times as large."""
        return replace(self, base=self.base.rescaled(scale), root=self.root * scale)

    def _split(self, Phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Phi A, which meets the former weights, and Phi G, which meets u."""
        revised = Phi @ self.gain
        kept = Phi.copy()
        kept[..., self.columns] -= revised
        return kept, revised


@dataclass(frozen=True)
class ModelMixture:
    """A mixture over models of a few weights u: in each model some are zero, the others Gaussian.

    Given a model, u has covariance S = D (I + D W'W D)^-1 D and mean S W'z, where D holds the slab
    standard deviations of the weights that the model has.

    Parameters
    ----------
    weight : array of shape (n_models,)
        Probabilities of the models; their sum is 1.
    inside : array of bool of shape (n_models, k)
        Which of the weights each model has.
    W, z : arrays of shape (m, k) and (m,), or (n_likelihoods, m, k) and (n_likelihoods, m)
        The likelihood exp(-|z - W u|^2/2) of the weights, or several.
    slab : array of shape (k,), or (n_models, k)
        Standard deviation of each weight under the slab, common to all models or of each.
    likelihood : array of int of shape (n_models,), optional
        Which likelihood each model has, where there are several.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebayes.posterior import ModelMixture
    >>> models = np.array([[False], [True]])
    >>> mixture = ModelMixture(np.full(2, 0.5), models, np.eye(1), np.array([2.0]), np.ones(1))
    >>> mean, V = mixture.moments()
    >>> mean, V
    (array([0.5]), array([[0.5]]))
    """

    weight: np.ndarray
    inside: np.ndarray
    W: np.ndarray
    z: np.ndarray
    slab: np.ndarray
    likelihood: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.weight)

    def model(self, i: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the weights that a model has, their mean and a root of their covariance."""
        idx, mean, root = self._together(np.array([i]))
        return idx[0], mean[0], root[0]

    def _together(self, models: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return what `model` does for several models with the same number of weights."""
        idx = np.nonzero(self.inside[models])[1].reshape(len(models), -1)
        slab = np.broadcast_to(self.slab, self.inside.shape)[models]
        D = np.take_along_axis(slab, idx, axis=1)
        if self.likelihood is None:
            W, z = np.broadcast_to(self.W, (len(models), *self.W.shape)), self.z[None]
        else:
            W, z = self.W[self.likelihood[models]], self.z[self.likelihood[models]]
        # Singular values: accurate where the rows are fewer than the weights or without noise.
        scaled = np.take_along_axis(W, idx[:, None], axis=2) * D[:, None]
        full = scaled.shape[2] > scaled.shape[1]
        U, s, Vt = np.linalg.svd(scaled, full_matrices=full)
        r = s.shape[1]
        shrink = np.ones(Vt.shape[:2])
        shrink[:, :r] = 1.0 / np.sqrt(1.0 + s**2)
        root = D[:, :, None] * (np.swapaxes(Vt, 1, 2) * shrink[:, None])
        along = shrink[:, :r] * s * np.matmul(z[:, None], U[:, :, :r])[:, 0]
        return idx, np.matmul(root[:, :, :r], along[:, :, None])[:, :, 0], root

    def _parts(self) -> Iterator[tuple[np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]]]:
        """Yield numbers of models, and what `model` returns for each of them."""
        count = np.count_nonzero(self.inside, axis=1)
        for k in np.unique(count):
            same = np.flatnonzero(count == k)
            step = max(1, _AT_ONCE // (self.W.shape[-2] * self.W.shape[-1]))
            for first in range(0, len(same), step):
                models = same[first : first + step]
                yield models, self._together(models)

    def means(self) -> np.ndarray:
        """Return the mean of all weights under each model, of shape (n_models, k)."""
        means = np.zeros(self.inside.shape)
        for models, (idx, inside, _) in self._parts():
            means[models[:, None], idx] = inside
        return means

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the mixture."""
        k = self.inside.shape[1]
        means, V = np.zeros(self.inside.shape), np.zeros((k, k))
        for models, (idx, inside, root) in self._parts():
            means[models[:, None], idx] = inside
            covariance = self.weight[models, None, None] * (root @ np.swapaxes(root, 1, 2))
            np.add.at(V, (idx[:, :, None], idx[:, None]), covariance)
        mean = self.weight @ means
        V += (self.weight[:, None] * (means - mean)).T @ (means - mean)
        return mean, V

    def rescaled(self, scale: PerTarget) -> ModelMixture:
        """Return the mixture of the weights of a target `scale` times as large."""
        return replace(self, W=self.W / scale, slab=self.slab * scale)


@dataclass(frozen=True)
class ModelAverage(Revised):
    """A revision in which the few weights u are a mixture over models.

    Mean and covariance of the whole are those of `Revised`; draws and `components` tell the models
    apart.

    Parameters
    ----------
    base, columns, gain, root
        As in `Revised`; `root` is that of the covariance of the mixture.
    mixture : ModelMixture
        The distribution of the weights in `columns`.
    mean : array of shape (k,)
        The mean of the mixture.
    """

    is_mixture: ClassVar[bool] = True
    mixture: ModelMixture
    mean: np.ndarray

    def components(self, Phi: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the model weights, and deviation from the mean and variance of Phi w under each.

        Their shapes are (n_models,), (n_models, len(Phi)) and (n_models, len(Phi)).
        """
        kept, revised = self._split(Phi)
        means, variances = np.empty((2, len(self.mixture), len(revised)))
        for i in range(len(self.mixture)):
            idx, mean, root = self.mixture.model(i)
            means[i] = revised[:, idx] @ mean
            variances[i] = np.sum((revised[:, idx] @ root) ** 2, axis=1)
        return (
            self.mixture.weight,
            means - revised @ self.mean,
            variances + self.base.variance(kept),
        )

    def draw(self, Phi: np.ndarray, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Return draws of Phi w, shape (len(Phi), n_samples): first a model, then its weights."""
        kept, revised = self._split(Phi)
        draws = self.base.draw(kept, n_samples, rng)
        chosen = rng.choice(len(self.mixture), size=n_samples, p=self.mixture.weight)
        for i in np.unique(chosen):
            at, (idx, mean, root) = np.flatnonzero(chosen == i), self.mixture.model(i)
            u = mean[:, None] + root @ rng.standard_normal((len(root), len(at)))
            draws[:, at] += revised[:, idx] @ u
        return draws - (revised @ self.mean)[:, None]

    def rescaled(self, scale: PerTarget) -> Self:
        """Return the form of the weights of a target `scale` times as large."""
        return replace(
            self,
            base=self.base.rescaled(scale),
            root=self.root * scale,
            mixture=self.mixture.rescaled(scale),
            mean=self.mean * scale,
        )
