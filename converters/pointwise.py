"""Elementwise functions, taken apart into ones that lower.

Accuracy is that of float32 (or the tensor's own dtype) arithmetic in the order written here.
"""

import math

import torch

from benchbench.converter_kit import Decompositions

OPS = (
    "aten.div.Scalar_mode",
    "aten.exp2.default",
    "aten.round.decimals",
    "aten.fmax.default",
    "aten.fmin.default",
    "aten.clamp_max.Tensor",
    "aten.clamp_min.Tensor",
    "aten.copysign.Tensor",
    "aten.copysign.Scalar",
    "aten.signbit.default",
    "aten.hypot.default",
    "aten.lcm.default",
    "aten.ldexp.Tensor",
    "aten.frac.default",
    "aten.heaviside.default",
    "aten.xlogy.Tensor",
    "aten.xlogy.Scalar_Self",
    "aten.xlogy.Scalar_Other",
    "aten.special_xlog1py.default",
    "aten.special_xlog1py.self_scalar",
    "aten.special_xlog1py.other_scalar",
    "aten.special_entr.default",
    "aten.nan_to_num.default",
    "aten.angle.default",
    "aten.polar.default",
    "aten._conj.default",
    "aten.logaddexp2.default",
    "aten.floor_divide.Scalar",
    "aten.lerp.Tensor",
    "aten.i0.default",
    "aten.special_i1.default",
    "aten.special_erfcx.default",
    "aten._add_relu.Tensor",
    "aten._masked_scale.default",
    "aten._masked_softmax.default",
    "aten.hardshrink_backward.default",
    "aten.softshrink_backward.default",
    "aten._foreach_neg.default",
    "aten._foreach_reciprocal.default",
    "aten._foreach_sign.default",
    "aten._foreach_sqrt.default",
    "aten._foreach_clamp_max.Scalar",
    "aten._foreach_clamp_max.List",
    "aten._foreach_clamp_max.ScalarList",
    "aten._foreach_clamp_min.Scalar",
    "aten._foreach_clamp_min.List",
    "aten._foreach_clamp_min.ScalarList",
    "aten._lazy_clone.default",
    "aten.lift_fresh.default",
    "aten.lift.default",
    "aten.range.default",
    "aten.range.step",
    "aten.bartlett_window.default",
    "aten.bartlett_window.periodic",
    "aten.blackman_window.default",
    "aten.blackman_window.periodic",
    "aten.hamming_window.default",
    "aten.hamming_window.periodic",
    "aten.hamming_window.periodic_alpha",
    "aten.hamming_window.periodic_alpha_beta",
)
KIND = "decomposition"

decomposition = Decompositions()
decompositions = decomposition.table
aten = torch.ops.aten


def _floating(*values):
    kind = torch.result_type(values[0], values[-1])
    if kind.is_floating_point or kind.is_complex:
        return kind
    return torch.get_default_dtype()


@decomposition("aten.div.Scalar_mode")
def div_scalar_mode(self, other, *, rounding_mode):
    """aten::div.Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor"""
    kind = torch.result_type(self, other)
    other = torch.full([], other, dtype=kind, device=self.device)
    return aten.div.Tensor_mode(self.to(kind), other, rounding_mode=rounding_mode)


@decomposition("aten.floor_divide.Scalar")
def floor_divide(self, other):
    """aten::floor_divide.Scalar(Tensor self, Scalar other) -> Tensor"""
    return div_scalar_mode(self, other, rounding_mode="floor")


@decomposition("aten.exp2.default")
def exp2(self):
    """aten::exp2(Tensor self) -> Tensor"""
    return (self.to(_floating(self, self)) * math.log(2.0)).exp()


@decomposition("aten.round.decimals")
def round_decimals(self, *, decimals):
    """aten::round.decimals(Tensor self, *, int decimals) -> Tensor"""
    if not self.is_floating_point():
        return self.clone()
    scale = 10.0 ** abs(decimals)
    if decimals == 0:
        return self.round()
    if decimals > 0:
        return (self * scale).round() / scale
    return (self / scale).round() * scale


def _common(self, other):
    kind = torch.result_type(self, other)
    return self.to(kind), other.to(kind)


@decomposition("aten.fmax.default")
def fmax(self, other):
    """aten::fmax(Tensor self, Tensor other) -> Tensor; a number wins over NaN"""
    a, b = _common(self, other)
    return torch.where((a != a) | (b > a), torch.where(b != b, a, b), a)


@decomposition("aten.fmin.default")
def fmin(self, other):
    """aten::fmin(Tensor self, Tensor other) -> Tensor; a number wins over NaN"""
    a, b = _common(self, other)
    return torch.where((a != a) | (b < a), torch.where(b != b, a, b), a)


@decomposition("aten.clamp_max.Tensor")
def clamp_max(self, max):
    """aten::clamp_max.Tensor(Tensor self, Tensor max) -> Tensor"""
    return aten.minimum.default(*_common(self, max))


@decomposition("aten.clamp_min.Tensor")
def clamp_min(self, min):
    """aten::clamp_min.Tensor(Tensor self, Tensor min) -> Tensor"""
    return aten.maximum.default(*_common(self, min))


@decomposition("aten.signbit.default")
def signbit(self):
    """aten::signbit(Tensor self) -> Tensor; -0.0 has a sign, seen by its reciprocal"""
    if self.dtype is torch.bool:
        return torch.zeros_like(self)
    if not self.is_floating_point():
        return self < 0
    return (self < 0) | ((self == 0) & (self.reciprocal() < 0))


@decomposition("aten.copysign.Tensor")
def copysign(self, other):
    """aten::copysign.Tensor(Tensor self, Tensor other) -> Tensor"""
    kind = _floating(self, other)
    size = self.to(kind).abs()
    return torch.where(signbit(other), -size, size)


@decomposition("aten.copysign.Scalar")
def copysign_scalar(self, other):
    """aten::copysign.Scalar(Tensor self, Scalar other) -> Tensor"""
    size = self.to(_floating(self, other)).abs()
    return -size if math.copysign(1.0, other) < 0 else size


@decomposition("aten.hypot.default")
def hypot(self, other):
    """aten::hypot(Tensor self, Tensor other) -> Tensor"""
    a, b = _common(self, other)
    a, b = a.abs(), b.abs()
    big, small = aten.maximum.default(a, b), aten.minimum.default(a, b)
    ratio = torch.where(big == 0, torch.zeros_like(big), small / big)
    size = big * (1 + ratio * ratio).sqrt()
    return torch.where(big == math.inf, big, size)


@decomposition("aten.lcm.default")
def lcm(self, other):
    """aten::lcm(Tensor self, Tensor other) -> Tensor"""
    a, b = _common(self, other)
    common = aten.gcd.default(a, b)
    safe = torch.where(common == 0, torch.ones_like(common), common)
    return (aten.div.Tensor_mode(a, safe, rounding_mode="trunc") * b).abs()


@decomposition("aten.ldexp.Tensor")
def ldexp(self, other):
    """aten::ldexp.Tensor(Tensor self, Tensor other) -> Tensor"""
    kind = _floating(self, self)
    return self.to(kind) * aten.pow.Scalar(2.0, other.to(kind))


@decomposition("aten.frac.default")
def frac(self):
    """aten::frac(Tensor self) -> Tensor"""
    return self - self.trunc()


@decomposition("aten.heaviside.default")
def heaviside(self, values):
    """aten::heaviside(Tensor self, Tensor values) -> Tensor"""
    step = (self > 0).to(self.dtype)
    step = torch.where(self == 0, values, step)
    return torch.where(self != self, self, step) if self.is_floating_point() else step


def _xlog(self, other, log):
    kind = _floating(self, other)
    x = self.to(kind) if isinstance(self, torch.Tensor) else self
    y = other.to(kind) if isinstance(other, torch.Tensor) else other
    if not isinstance(y, torch.Tensor):
        y = torch.full([], y, dtype=kind, device=x.device)
    if not isinstance(x, torch.Tensor):
        x = torch.full([], x, dtype=kind, device=y.device)
    result = torch.where(x == 0, torch.zeros_like(x), x * log(y))
    return torch.where(y != y, y, result)


@decomposition("aten.xlogy.Tensor", "aten.xlogy.Scalar_Self", "aten.xlogy.Scalar_Other")
def xlogy(self, other):
    """aten::xlogy.Tensor(Tensor self, Tensor other) -> Tensor"""
    return _xlog(self, other, torch.log)


@decomposition(
    "aten.special_xlog1py.default",
    "aten.special_xlog1py.self_scalar",
    "aten.special_xlog1py.other_scalar",
)
def xlog1py(self, other):
    """aten::special_xlog1py(Tensor self, Tensor other) -> Tensor"""
    return _xlog(self, other, torch.log1p)


@decomposition("aten.special_entr.default")
def entr(self):
    """aten::special_entr(Tensor self) -> Tensor"""
    x = self.to(_floating(self, self))
    inner = torch.where(x == 0, torch.zeros_like(x), -x * x.log())
    inner = torch.where(x < 0, torch.full_like(x, -math.inf), inner)
    return torch.where(x != x, x, inner)


@decomposition("aten.nan_to_num.default")
def nan_to_num(self, nan=None, posinf=None, neginf=None):
    """aten::nan_to_num(Tensor self, float? nan, float? posinf, float? neginf) -> Tensor"""
    if not self.is_floating_point():
        return self.clone()
    limits = torch.finfo(self.dtype)
    high = limits.max if posinf is None else posinf
    low = limits.min if neginf is None else neginf
    result = torch.where(self != self, torch.full_like(self, nan or 0.0), self)
    result = torch.where(self == math.inf, torch.full_like(self, high), result)
    return torch.where(self == -math.inf, torch.full_like(self, low), result)


@decomposition("aten.angle.default")
def angle(self):
    """aten::angle(Tensor self) -> Tensor"""
    if self.is_complex():
        return torch.atan2(torch.imag(self), torch.real(self))
    x = self.to(_floating(self, self))
    turned = torch.where(x < 0, torch.full_like(x, math.pi), torch.zeros_like(x))
    return torch.where(x != x, x, turned)


@decomposition("aten.polar.default")
def polar(abs, angle):
    """aten::polar(Tensor abs, Tensor angle) -> Tensor"""
    return torch.complex(abs * angle.cos(), abs * angle.sin())


@decomposition("aten._conj.default")
def conj(self):
    """aten::_conj(Tensor(a) self) -> Tensor(a)"""
    pairs = torch.view_as_real(self)
    return torch.complex(pairs.select(-1, 0), -pairs.select(-1, 1))


@decomposition("aten.logaddexp2.default")
def logaddexp2(self, other):
    """aten::logaddexp2(Tensor self, Tensor other) -> Tensor"""
    a, b = _common(self, other)
    big = aten.maximum.default(a, b)
    gap = -(a - b).abs()
    tail = torch.log1p((gap * math.log(2.0)).exp()) / math.log(2.0)
    same_infinite = (a == b) & (a.abs() == math.inf)
    return torch.where(same_infinite, a, big + tail)


@decomposition("aten.lerp.Tensor")
def lerp(self, end, weight):
    """aten::lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor"""
    return self + weight * (end - self)


@decomposition("aten.i0.default")
def i0(self):
    """aten::i0(Tensor self) -> Tensor"""
    x = self.to(_floating(self, self))
    return aten.special_i0e.default(x) * x.abs().exp()


@decomposition("aten.special_i1.default")
def i1(self):
    """aten::special_i1(Tensor self) -> Tensor"""
    x = self.to(_floating(self, self))
    return aten.special_i1e.default(x) * x.abs().exp()


@decomposition("aten.special_erfcx.default")
def erfcx(self):
    """aten::special_erfcx(Tensor self) -> Tensor; by a continued fraction where x is large"""
    x = self.to(_floating(self, self))
    near = (x * x).exp() * torch.erfc(x)
    far = torch.where(x > 4, x, torch.full_like(x, 4.0))
    tail = far
    for k in range(24, 0, -1):
        tail = far + (k / 2.0) / tail
    return torch.where(x > 4, 1 / (math.sqrt(math.pi) * tail), near)


@decomposition("aten._add_relu.Tensor")
def add_relu(self, other, *, alpha=1):
    """aten::_add_relu.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"""
    return torch.relu(aten.add.Tensor(self, other, alpha=alpha))


@decomposition("aten._masked_scale.default")
def masked_scale(self, mask, scale):
    """aten::_masked_scale(Tensor self, Tensor mask, float scale) -> Tensor"""
    return self * mask.to(self.dtype) * scale


@decomposition("aten._masked_softmax.default")
def masked_softmax(self, mask, dim=None, mask_type=None):
    """aten::_masked_softmax(Tensor self, Tensor mask, int? dim, int? mask_type) -> Tensor"""
    if mask_type == 0:
        mask = mask.reshape(1, 1, *mask.shape[-2:]).expand(self.shape)
    elif mask_type == 1:
        mask = mask.reshape(mask.shape[0], 1, 1, mask.shape[-1]).expand(self.shape)
    dim = self.dim() - 1 if dim is None else dim
    return torch.softmax(self.masked_fill(mask, -math.inf), dim)


@decomposition("aten.hardshrink_backward.default")
def hardshrink_backward(grad_out, self, lambd):
    """aten::hardshrink_backward(Tensor grad_out, Tensor self, Scalar lambd) -> Tensor"""
    inside = (self >= -lambd) & (self <= lambd)
    return torch.where(inside, torch.zeros_like(grad_out), grad_out)


@decomposition("aten.softshrink_backward.default")
def softshrink_backward(grad_output, self, lambd):
    """aten::softshrink_backward(Tensor grad_output, Tensor self, Scalar lambd) -> Tensor"""
    return hardshrink_backward(grad_output, self, lambd)


@decomposition("aten._foreach_neg.default")
def foreach_neg(self):
    """aten::_foreach_neg(Tensor[] self) -> Tensor[]"""
    return [aten.neg.default(x) for x in self]


@decomposition("aten._foreach_reciprocal.default")
def foreach_reciprocal(self):
    """aten::_foreach_reciprocal(Tensor[] self) -> Tensor[]"""
    return [aten.reciprocal.default(x) for x in self]


@decomposition("aten._foreach_sign.default")
def foreach_sign(self):
    """aten::_foreach_sign(Tensor[] self) -> Tensor[]"""
    return [aten.sign.default(x) for x in self]


@decomposition("aten._foreach_sqrt.default")
def foreach_sqrt(self):
    """aten::_foreach_sqrt(Tensor[] self) -> Tensor[]"""
    return [aten.sqrt.default(x) for x in self]


@decomposition("aten._foreach_clamp_max.Scalar")
def foreach_clamp_max(self, scalar):
    """aten::_foreach_clamp_max.Scalar(Tensor[] self, Scalar scalar) -> Tensor[]"""
    return [x.clamp(max=scalar) for x in self]


@decomposition("aten._foreach_clamp_max.List")
def foreach_clamp_max_list(self, other):
    """aten::_foreach_clamp_max.List(Tensor[] self, Tensor[] other) -> Tensor[]"""
    return [clamp_max(x, y) for x, y in zip(self, other, strict=True)]


@decomposition("aten._foreach_clamp_max.ScalarList")
def foreach_clamp_max_scalars(self, scalars):
    """aten::_foreach_clamp_max.ScalarList(Tensor[] self, Scalar[] scalars) -> Tensor[]"""
    return [x.clamp(max=y) for x, y in zip(self, scalars, strict=True)]


@decomposition("aten._foreach_clamp_min.Scalar")
def foreach_clamp_min(self, scalar):
    """aten::_foreach_clamp_min.Scalar(Tensor[] self, Scalar scalar) -> Tensor[]"""
    return [x.clamp(min=scalar) for x in self]


@decomposition("aten._foreach_clamp_min.List")
def foreach_clamp_min_list(self, other):
    """aten::_foreach_clamp_min.List(Tensor[] self, Tensor[] other) -> Tensor[]"""
    return [clamp_min(x, y) for x, y in zip(self, other, strict=True)]


@decomposition("aten._foreach_clamp_min.ScalarList")
def foreach_clamp_min_scalars(self, scalars):
    """aten::_foreach_clamp_min.ScalarList(Tensor[] self, Scalar[] scalars) -> Tensor[]"""
    return [x.clamp(min=y) for x, y in zip(self, scalars, strict=True)]


@decomposition("aten._lazy_clone.default", "aten.lift_fresh.default", "aten.lift.default")
def lazy_clone(self):
    """aten::_lazy_clone(Tensor self) -> Tensor; aten::lift(Tensor self) -> Tensor"""
    return self.clone()


@decomposition("aten.range.default", "aten.range.step")
def range_(start, end, step=1, *, dtype=None, layout=None, device=None, pin_memory=None):
    """aten::range.step(Scalar start, Scalar end, Scalar step=1, ...) -> Tensor; with its end"""
    count = int((end - start) / step) + 1
    dtype = torch.get_default_dtype() if dtype is None else dtype
    return (torch.arange(count, device=device).to(dtype) * step + start).to(dtype)


def _window(length, periodic, cosines, dtype, device):
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if length <= 1:
        return torch.ones(length, dtype=dtype, device=device)
    turns = torch.arange(length, device=device).to(dtype)
    turns = turns * (2 * math.pi / (length if periodic else length - 1))
    result = torch.full_like(turns, cosines[0])
    for k, weight in enumerate(cosines[1:], start=1):
        result = result + (turns * k).cos() * weight
    return result


@decomposition("aten.bartlett_window.default", "aten.bartlett_window.periodic")
def bartlett_window(
    window_length, periodic=True, *, dtype=None, layout=None, device=None, pin_memory=None
):
    """aten::bartlett_window.periodic(int window_length, bool periodic, ...) -> Tensor"""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if window_length <= 1:
        return torch.ones(window_length, dtype=dtype, device=device)
    half = (window_length if periodic else window_length - 1) / 2
    return 1 - (torch.arange(window_length, device=device).to(dtype) / half - 1).abs()


@decomposition("aten.blackman_window.default", "aten.blackman_window.periodic")
def blackman_window(
    window_length, periodic=True, *, dtype=None, layout=None, device=None, pin_memory=None
):
    """aten::blackman_window.periodic(int window_length, bool periodic, ...) -> Tensor"""
    return _window(window_length, periodic, (0.42, -0.5, 0.08), dtype, device)


@decomposition(
    "aten.hamming_window.default",
    "aten.hamming_window.periodic",
    "aten.hamming_window.periodic_alpha",
    "aten.hamming_window.periodic_alpha_beta",
)
def hamming_window(
    window_length,
    periodic=True,
    alpha=0.54,
    beta=0.46,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=None,
):
    """aten::hamming_window.periodic_alpha_beta(int window_length, bool periodic, ...)"""
    return _window(window_length, periodic, (alpha, -beta), dtype, device)
