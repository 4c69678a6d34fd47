"""Rules for ONNX operators that bend each element, written out in operations of LLMIR where it has none."""

from __future__ import annotations

from unsay.compiler.frontend.onnx.builder import Builder
from unsay.compiler.frontend.onnx.call import Call
from unsay.compiler.frontend.onnx.rule import Rule, rule
from unsay.compiler.frontend.onnx.sizes import RefusalError
from unsay.compiler.ir.core import Value

_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875
"""Defaults of ONNX."""


def _leaky_relu(call: Call) -> Value:
    """max(x, 0) + alpha * min(x, 0)"""
    return _sloped(call, call.builder.number(call.float("alpha", 0.01), call.value(0)))


def _prelu(call: Call) -> Value:
    return _sloped(call, call.value(1))


def _sloped(call: Call, slope: Value) -> Value:
    b, x = call.builder, call.value(0)
    return b.emit("add", b.emit("relu", x), b.emit("mul", slope, _below(b, x)))


def _below(b: Builder, x: Value) -> Value:
    """min(x, 0)"""
    return b.emit("minimum", x, b.number(0, x))


def _elu(call: Call) -> Value:
    return _exponential(call, call.float("alpha", 1.0), 1.0)


def _celu(call: Call) -> Value:
    alpha = call.float("alpha", 1.0)
    if alpha == 0:
        raise RefusalError("attribute alpha = 0")
    return _exponential(call, alpha, 1 / alpha)


def _selu(call: Call) -> Value:
    """gamma * elu(x)"""
    b, y = call.builder, _exponential(call, call.float("alpha", _SELU_ALPHA), 1.0)
    return b.emit("mul", y, b.number(call.float("gamma", _SELU_GAMMA), y))


def _exponential(call: Call, alpha: float, scale: float) -> Value:
    """max(x, 0) + alpha * (exp(scale * min(x, 0)) - 1)"""
    b, x = call.builder, call.value(0)
    below = _below(b, x)
    power = b.emit("exp", below if scale == 1.0 else b.emit("mul", below, b.number(scale, x)))
    bent = b.emit("mul", b.emit("sub", power, b.number(1, x)), b.number(alpha, x))
    return b.emit("add", b.emit("relu", x), bent)


def _softplus(call: Call) -> Value:
    return _log_one_more(call.builder, call.value(0))


def _mish(call: Call) -> Value:
    """x * tanh(softplus(x))"""
    b, x = call.builder, call.value(0)
    return b.emit("mul", x, b.emit("tanh", _log_one_more(b, x)))


def _log_one_more(b: Builder, x: Value) -> Value:
    """log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|))"""
    small = b.emit("exp", b.emit("neg", b.emit("abs", x)))
    return b.emit("add", b.emit("relu", x), b.emit("log", b.emit("add", small, b.number(1, x))))


def _softsign(call: Call) -> Value:
    """x / (1 + |x|)"""
    b, x = call.builder, call.value(0)
    return b.emit("div", x, b.emit("add", b.emit("abs", x), b.number(1, x)))


def _thresholded_relu(call: Call) -> Value:
    """x where x > alpha, else 0"""
    b, x = call.builder, call.value(0)
    above = b.emit("greater", x, b.number(call.float("alpha", 1.0), x))
    return b.emit("select", above, x, b.number(0, x))


def _hard_sigmoid(call: Call) -> Value:
    """min(max(alpha * x + beta, 0), 1)"""
    return _hard(call, call.float("alpha", 0.2), call.float("beta", 0.5))


def _hard_swish(call: Call) -> Value:
    """x * hard_sigmoid(x) with slope 1/6"""
    return call.builder.emit("mul", call.value(0), _hard(call, 1 / 6, 0.5))


def _hard(call: Call, alpha: float, beta: float) -> Value:
    b, x = call.builder, call.value(0)
    line = b.emit("add", b.emit("mul", x, b.number(alpha, x)), b.number(beta, x))
    return b.emit("minimum", b.emit("maximum", line, b.number(0, x)), b.number(1, x))


def _gelu(call: Call) -> Value:
    return call.builder.emit("gelu", call.value(0), approximate=call.text("approximate", "none"))


def _swish(call: Call) -> Value:
    if call.float("alpha", 1.0) != 1.0:
        raise RefusalError(f"attribute alpha = {call.float('alpha', 1.0)}; 1 is supported")
    return call.builder.emit("silu", call.value(0))


RULES: dict[str, Rule] = {
    "LeakyRelu": rule(_leaky_relu, 1, "alpha"),
    "PRelu": rule(_prelu, 2),
    "Elu": rule(_elu, 1, "alpha"),
    "Celu": rule(_celu, 1, "alpha"),
    "Selu": rule(_selu, 1, "alpha", "gamma"),
    "Softplus": rule(_softplus, 1),
    "Softsign": rule(_softsign, 1),
    "Mish": rule(_mish, 1),
    "ThresholdedRelu": rule(_thresholded_relu, 1, "alpha"),
    "HardSigmoid": rule(_hard_sigmoid, 1, "alpha", "beta"),
    "HardSwish": rule(_hard_swish, 1),
    "Gelu": rule(_gelu, 1, "approximate"),
    "Swish": rule(_swish, 1, "alpha"),
}
