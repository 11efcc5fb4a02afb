"""In-place forms: `x += y`, `x.add_(y)`: the method's result is written into the tensor's memory (see `assign`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

from tinyweb.array.core import TensorCore
from tinyweb.array.random import Random
from tinyweb.array.threefry import Generator

_RANKS = {"bool": 0, "uint": 1, "int": 1}  # floats: 2


def _form(name: str) -> Callable[..., Any]:
    """The in-place form of the method `name`."""

    def method(self: InPlace, *args: Any, **keywords: Any) -> InPlace:
        return self._become(f"{name}_", getattr(self, name)(*args, **keywords))

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f"`{name}`, written into this tensor's memory; returns the tensor."
    return method


class InPlace(Random):
    """Methods that end in _ and the augmented operators. The tensor keeps its shape and dtype, as in PyTorch: TypeError
    where a float would have to become an integer, or an integer a bool; ValueError where the result is larger."""

    __slots__ = ()

    def _become(self, method: str, value: TensorCore) -> Self:
        if _RANKS.get(value.dtype.kind, 2) > _RANKS.get(self.dtype.kind, 2):
            raise TypeError(
                f"{method}: the result is {value.dtype.name}, which this {self.dtype.name} tensor cannot hold"
            )
        return self._update(method, value)

    def copy_(self, source: Any) -> Self:
        """Write `source` (broadcast to this shape, cast to this dtype) into this tensor's memory."""
        x = source if isinstance(source, TensorCore) else type(self)(source, dtype=self.dtype, device=self.device)
        return self._update("copy_", x)

    def fill_(self, value: Any) -> Self:
        """Write one number everywhere. TypeError for what is none, ValueError for a tensor with axes."""
        if isinstance(value, list | tuple | str | bytes) or value is None:
            raise TypeError(f"fill_: needs one number, got {type(value).__name__}")
        if getattr(value, "shape", ()) != ():
            raise ValueError(f"fill_: needs one number, got the shape {tuple(value.shape)}")
        return self._update("fill_", type(self)(value, dtype=self.dtype, device=self.device))

    def zero_(self) -> Self:
        """Write zeros everywhere."""
        return self.fill_(0)

    __iadd__ = add_ = _form("add")
    __isub__ = sub_ = _form("sub")
    __imul__ = mul_ = _form("mul")
    __itruediv__ = div_ = _form("div")
    __ifloordiv__ = floor_divide_ = _form("floor_divide")
    __imod__ = remainder_ = _form("remainder")
    __ipow__ = pow_ = _form("pow")
    __iand__ = bitwise_and_ = _form("bitwise_and")
    __ior__ = bitwise_or_ = _form("bitwise_or")
    __ixor__ = bitwise_xor_ = _form("bitwise_xor")
    __ilshift__ = bitwise_left_shift_ = _form("bitwise_left_shift")
    __irshift__ = bitwise_right_shift_ = _form("bitwise_right_shift")
    neg_ = _form("neg")
    abs_ = _form("abs")
    clamp_ = _form("clamp")
    relu_ = _form("relu")
    relu6_, leaky_relu_, rrelu_ = _form("relu6"), _form("leaky_relu"), _form("rrelu")
    elu_, selu_, celu_ = _form("elu"), _form("selu"), _form("celu")
    hardtanh_, threshold_ = _form("hardtanh"), _form("threshold")
    exp_ = _form("exp")
    sqrt_ = _form("sqrt")
    sigmoid_ = _form("sigmoid")
    tanh_ = _form("tanh")
    lerp_ = _form("lerp")
    masked_fill_ = _form("masked_fill")
    addcmul_ = _form("addcmul")
    addcdiv_ = _form("addcdiv")
    scatter_ = _form("scatter")
    scatter_add_ = _form("scatter_add")
    index_add_ = _form("index_add")
    index_copy_ = _form("index_copy")
    index_fill_ = _form("index_fill")
    index_put_ = _form("index_put")
    masked_scatter_ = _form("masked_scatter")
    tril_ = _form("tril")
    triu_ = _form("triu")
    absolute_ = _form("absolute")
    negative_ = _form("negative")
    square_ = _form("square")
    reciprocal_ = _form("reciprocal")
    rsqrt_ = _form("rsqrt")
    sign_ = _form("sign")
    sgn_ = _form("sgn")
    floor_ = _form("floor")
    ceil_ = _form("ceil")
    round_ = _form("round")
    trunc_ = _form("trunc")
    fix_ = _form("fix")
    frac_ = _form("frac")
    exp2_ = _form("exp2")
    expm1_ = _form("expm1")
    log_ = _form("log")
    log2_ = _form("log2")
    log10_ = _form("log10")
    log1p_ = _form("log1p")
    logit_ = _form("logit")
    sin_ = _form("sin")
    cos_ = _form("cos")
    tan_ = _form("tan")
    asin_ = _form("asin")
    acos_ = _form("acos")
    atan_ = _form("atan")
    sinh_ = _form("sinh")
    cosh_ = _form("cosh")
    asinh_ = _form("asinh")
    acosh_ = _form("acosh")
    atanh_ = _form("atanh")
    arcsin_ = _form("arcsin")
    arccos_ = _form("arccos")
    arctan_ = _form("arctan")
    arcsinh_ = _form("arcsinh")
    arccosh_ = _form("arccosh")
    arctanh_ = _form("arctanh")
    atan2_ = _form("atan2")
    arctan2_ = _form("arctan2")
    sinc_ = _form("sinc")
    deg2rad_ = _form("deg2rad")
    rad2deg_ = _form("rad2deg")
    erf_ = _form("erf")
    erfc_ = _form("erfc")
    erfinv_ = _form("erfinv")
    lgamma_ = _form("lgamma")
    digamma_ = _form("digamma")
    mvlgamma_ = _form("mvlgamma")
    xlogy_ = _form("xlogy")
    hypot_ = _form("hypot")
    copysign_ = _form("copysign")
    heaviside_ = _form("heaviside")
    nextafter_ = _form("nextafter")
    nan_to_num_ = _form("nan_to_num")
    ldexp_ = _form("ldexp")
    float_power_ = _form("float_power")
    fmod_ = _form("fmod")
    gcd_ = _form("gcd")
    lcm_ = _form("lcm")
    multiply_ = _form("multiply")
    subtract_ = _form("subtract")
    divide_ = _form("divide")
    true_divide_ = _form("true_divide")
    clip_ = _form("clip")
    clamp_min_ = _form("clamp_min")
    clamp_max_ = _form("clamp_max")
    bitwise_not_ = _form("bitwise_not")
    logical_and_ = _form("logical_and")
    logical_or_ = _form("logical_or")
    logical_xor_ = _form("logical_xor")
    logical_not_ = _form("logical_not")
    eq_ = _form("eq")
    ne_ = _form("ne")
    lt_ = _form("lt")
    le_ = _form("le")
    gt_ = _form("gt")
    ge_ = _form("ge")
    less_ = _form("less")
    less_equal_ = _form("less_equal")
    greater_ = _form("greater")
    greater_equal_ = _form("greater_equal")
    not_equal_ = _form("not_equal")
    cumsum_ = _form("cumsum")
    cumprod_ = _form("cumprod")
    scatter_reduce_ = _form("scatter_reduce")

    # -- random -------------------------------------------------------------------------------------------------------
    def _own_options(self, generator: Generator | None) -> dict[str, Any]:
        return {"device": self.device, "generator": generator}

    def uniform_(self, low: float = 0.0, high: float = 1.0, generator: Generator | None = None) -> Self:
        """Numbers uniform in [low, high), written into this tensor's memory."""
        drawn = type(self).uniform(self.shape, low=low, high=high, **self._own_options(generator))
        return self._become("uniform_", drawn)

    def normal_(self, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Self:
        """Normal numbers, written into this tensor's memory."""
        drawn = type(self).normal(self.shape, mean=mean, std=std, **self._own_options(generator))
        return self._become("normal_", drawn)

    def exponential_(self, lambd: float = 1.0, generator: Generator | None = None) -> Self:
        """Exponentially distributed numbers of mean 1 / lambd, written into this tensor's memory."""
        if not lambd > 0:
            raise ValueError(f"exponential_: lambd must be above 0, got {lambd}")
        drawn = type(self).exponential(self.shape, rate=lambd, **self._own_options(generator))
        return self._become("exponential_", drawn)

    def log_normal_(self, mean: float = 1.0, std: float = 2.0, generator: Generator | None = None) -> Self:
        """e to the power of normal numbers, written into this tensor's memory."""
        drawn = type(self).normal(self.shape, mean=mean, std=std, **self._own_options(generator))
        return self._become("log_normal_", drawn.exp())

    def cauchy_(self, median: float = 0.0, sigma: float = 1.0, generator: Generator | None = None) -> Self:
        """Numbers of the Cauchy distribution, written into this tensor's memory."""
        angle = type(self).rand(self.shape, **self._own_options(generator)).add(2.0**-25 - 0.5).mul(math.pi)
        return self._become("cauchy_", angle.tan().mul(sigma).add(median))

    def geometric_(self, p: float, generator: Generator | None = None) -> Self:
        """How many trials of probability p it takes to succeed, written into this tensor's memory."""
        if not 0 < p < 1:
            raise ValueError(f"geometric_: p must be within (0, 1), got {p}")
        waited = type(self).exponential(self.shape, rate=-math.log1p(-p), **self._own_options(generator))
        return self._update("geometric_", waited.floor().add(1.0))

    def bernoulli_(self, p: float = 0.5, generator: Generator | None = None) -> Self:
        """1 with probability p, else 0, written into this tensor's memory."""
        return self._update("bernoulli_", self.bernoulli(p, generator))

    def random_(self, low: int = 0, high: int | None = None, generator: Generator | None = None) -> Self:
        """Whole numbers in low … high - 1 (0 … low - 1 with one bound, else as many as the dtype holds exactly),
        written into this tensor's memory."""
        if high is None and low == 0:
            high = 1 << (self.dtype.mantissa + 1) if self.dtype.is_float else int(self.dtype.max) + 1
        low, high = (0, low) if high is None else (low, high)
        drawn = type(self).randint(low, high, size=self.shape, dtype=self.dtype, **self._own_options(generator))
        return self._update("random_", drawn)
