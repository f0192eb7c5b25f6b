"""A fitted model as a graph of ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from .terms import FORMULAS, MATERN32, MATERN52, Part, Terms, headline

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto


def write_onnx(terms: Terms, name: str) -> bytes:
    """Return a serialised graph from ``X`` to ``mean`` and ``std``."""
    from onnx import TensorProto, checker, helper

    from .. import __version__

    graph = _Graph()
    phi, near, edge = _functions(graph, terms)
    graph.op("Add", graph.times(phi, terms.weights), graph.const(terms.intercept), out="mean")
    outputs = ["mean"]
    if terms.triangle is not None:
        graph.op("Sqrt", _variance(graph, terms, terms.triangle, phi, near, edge), out="std")
        outputs.append("std")
    double, d = TensorProto.DOUBLE, len(terms.inputs)
    made = helper.make_model(
        helper.make_graph(
            graph.nodes,
            name,
            [helper.make_tensor_value_info("X", double, ["n", d])],
            [helper.make_tensor_value_info(label, double, ["n"]) for label in outputs],
            graph.constants,
            doc_string="\n".join(headline(terms)),
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
        producer_name="sparsebayes",
        producer_version=__version__,
    )
    checker.check_model(made, full_check=True)
    return made.SerializeToString()


class _Graph:
    """Nodes and constants of a graph; its methods add to them and return the name of a value."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def const(self, value: ArrayLike, dtype: type = np.float64) -> str:
        """Add a constant."""
        from onnx import numpy_helper

        label = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype=dtype), label))
        return label

    def op(self, kind: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        """Add a node."""
        from onnx import helper

        label = out or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [label], **attributes))
        return label

    def pick(self, columns: np.ndarray, shift: np.ndarray, rate: np.ndarray) -> str:
        """Return columns of X, shifted and scaled."""
        x = self.op("Gather", "X", self.const(columns, np.int64), axis=1)
        return self.op("Mul", self.op("Sub", x, self.const(shift)), self.const(rate))

    def times(self, x: str, matrix: np.ndarray) -> str:
        """Return the product, or a constant of zeros where there are no functions.

        onnxruntime leaves a product of inner dimension 0 uninitialised.
        """
        if matrix.size:
            return self.op("MatMul", x, self.const(matrix))
        n_rows = self.op("Shape", "X", end=1)
        if matrix.ndim == 2:
            n_rows = self.op("Concat", n_rows, self.const([1], np.int64), axis=0)
        return self.op("Expand", self.const(0.0), n_rows)

    def sum_over(self, x: str, axis: int) -> str:
        """Return the sum over an axis."""
        return self.op("ReduceSum", x, self.const([axis], np.int64), keepdims=0)

    def sum_of_squares(self, x: str) -> str:
        """Return the sum of squares of each row."""
        return self.sum_over(self.op("Mul", x, x), 1)

    def plus(self, total: str, x: str) -> str:
        """Return the sum of two values; an empty name is zero."""
        return self.op("Add", total, x) if total else x

    def kernel_values(self, difference: str, part: Part, axis: int) -> str:
        """Return the share of a part of the kernel, from differences along `axis`."""
        power, _, formula = FORMULAS[part.family]
        powers = (
            self.op("Mul", difference, difference) if power == 2 else self.op("Abs", difference)
        )
        u = self.sum_over(powers, axis)
        if formula == "1 / (1 + u)":
            values = self.op("Div", self.const(1.0), self.op("Add", u, self.const(1.0)))
            return self.op("Mul", values, self.const(part.share))
        a = u if formula == "exp(-u)" else self.op("Sqrt", u)
        values = self.op("Exp", self.op("Neg", a))
        if formula == MATERN32:
            values = self.op("Mul", values, self.op("Add", a, self.const(1.0)))
        elif formula == MATERN52:
            third = self.op("Mul", self.op("Mul", a, a), self.const(1.0 / 3.0))
            linear = self.op("Add", a, self.const(1.0))
            values = self.op("Mul", values, self.op("Add", linear, third))
        return self.op("Mul", values, self.const(part.share))


def _functions(graph: _Graph, terms: Terms) -> tuple[str, str, str]:
    """Return the basis functions, those that tell where rows are rare, and the kernel at the box.

    The last is the kernel between rows and the nearest points of the box of the training rows.
    """
    if not terms.parts:
        return graph.pick(terms.columns, terms.shift, terms.rate), "", ""
    phi, edge = "", ""
    for part in terms.parts:
        z = graph.pick(part.columns, part.shift, part.rate)
        rows = graph.op("Unsqueeze", z, graph.const([1], np.int64))
        difference = graph.op("Sub", rows, graph.const(part.centres[None]))
        phi = graph.plus(phi, graph.kernel_values(difference, part, 2))
        if terms.beyond is not None:
            below = graph.op("Min", z, graph.const(part.high))
            nearest = graph.op("Max", below, graph.const(part.low))
            edge = graph.plus(edge, graph.kernel_values(graph.op("Sub", z, nearest), part, 1))
    if terms.explored is None:
        return phi, "", edge
    numbers = np.arange(terms.n_centres)
    k = len(terms.weights)
    own, near = graph.const(numbers[:k], np.int64), graph.const(numbers[k:], np.int64)
    return graph.op("Gather", phi, own, axis=1), graph.op("Gather", phi, near, axis=1), edge


def _variance(
    graph: _Graph, terms: Terms, triangle: np.ndarray, phi: str, near: str, edge: str
) -> str:
    """Return the variance of a new observation."""
    op, const = graph.op, graph.const
    centred = op("Sub", phi, const(terms.centre))
    variance = graph.sum_of_squares(graph.times(centred, triangle))
    variance = op("Add", variance, const(terms.variance))
    if terms.residual is not None:
        amplitude, inverse, jitter, h = terms.residual
        explained = graph.sum_of_squares(graph.times(phi, inverse))
        left = op("Max", op("Sub", const(1.0 - 2.0 * jitter), explained), const(0.0))
        share = op("Add", const(amplitude * h), op("Mul", left, const(amplitude * (1.0 - h))))
        variance = op("Add", variance, op("Mul", left, share))
    if terms.beyond is not None:
        shares = [op("Sub", const(1.0), op("Mul", edge, edge)), const(0.0)]
        if terms.explored is not None:
            known = graph.sum_of_squares(graph.times(near, terms.explored.triangle))
            shares.append(op("Sub", const(terms.explored.most), known))
        amplitude, shift = terms.beyond
        share = op("Max", *shares)
        k = op("Sqrt", op("Max", op("Sub", const(1.0), share), const(0.0)))
        back = op("Sub", const(1.0), k)
        variance = op("Add", variance, op("Mul", share, const(amplitude)))
        variance = op("Add", variance, op("Mul", op("Mul", back, back), const(shift)))
    return variance
