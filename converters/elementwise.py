"""Elementwise ops with an IR operator of the same meaning that torchair does not connect.

Each is ``aten::NAME(Tensor self[, Tensor or Scalar other])``; inputs get the dtype of the result
first, as in eager.

isnan: NotEqual(x, x), which also holds for integers; trunc: Trunc; atan2: Atan2; fmod: TruncateMod
(the sign of the dividend); bitwise_and, bitwise_or, bitwise_xor: BitwiseAnd, BitwiseOr, BitwiseXor
(LogicalAnd, LogicalOr, NotEqual of bools); logical_xor: NotEqual; shifts: LeftShift, RightShift;
erfc: Erfc; gcd: Gcd; nextafter: NextAfter; igamma, igammac, zeta, ndtri: the same; i0e, i1e:
BesselI0e, BesselI1e; complex: Complex; angle: Angle; sub.Scalar: Sub.
"""

from benchbench.converter_kit import DT, Converters, ge, promote

OPS = (
    "aten.isnan.default",
    "aten.trunc.default",
    "aten.atan2.default",
    "aten.fmod.Tensor",
    "aten.fmod.Scalar",
    "aten.bitwise_and.Scalar",
    "aten.bitwise_and.Scalar_Tensor",
    "aten.bitwise_or.Scalar",
    "aten.bitwise_or.Scalar_Tensor",
    "aten.bitwise_xor.Tensor",
    "aten.bitwise_xor.Scalar",
    "aten.bitwise_xor.Scalar_Tensor",
    "aten.logical_xor.default",
    "aten.__lshift__.Tensor",
    "aten.__lshift__.Scalar",
    "aten.__rshift__.Tensor",
    "aten.__rshift__.Scalar",
    "aten.bitwise_left_shift.Tensor",
    "aten.bitwise_left_shift.Tensor_Scalar",
    "aten.bitwise_left_shift.Scalar_Tensor",
    "aten.bitwise_right_shift.Tensor",
    "aten.bitwise_right_shift.Tensor_Scalar",
    "aten.bitwise_right_shift.Scalar_Tensor",
    "aten.erfc.default",
    "aten.gcd.default",
    "aten.nextafter.default",
    "aten.igamma.default",
    "aten.igammac.default",
    "aten.special_zeta.default",
    "aten.special_ndtri.default",
    "aten.special_i0e.default",
    "aten.special_i1e.default",
    "aten.complex.default",
    "aten.sub.Scalar",
)
KIND = "converter"

converter = Converters()
register = converter.register


@converter("aten.isnan.default")
def isnan(self, meta_outputs=None):
    return ge.NotEqual(self, self)


@converter("aten.trunc.default")
def trunc(self, meta_outputs=None):
    return ge.Trunc(self)


def _both(operator, self, other, meta):
    return operator(*promote(self, other, to=meta.dtype))


@converter("aten.atan2.default")
def atan2(self, other, meta_outputs=None):
    return _both(ge.Atan2, self, other, meta_outputs)


@converter("aten.fmod.Tensor", "aten.fmod.Scalar")
def fmod(self, other, meta_outputs=None):
    return _both(ge.TruncateMod, self, other, meta_outputs)


def _bits(bitwise, logical, self, other, meta):
    return _both(logical if meta.dtype == DT.DT_BOOL else bitwise, self, other, meta)


@converter("aten.bitwise_and.Scalar", "aten.bitwise_and.Scalar_Tensor")
def bitwise_and(self, other, meta_outputs=None):
    return _bits(ge.BitwiseAnd, ge.LogicalAnd, self, other, meta_outputs)


@converter("aten.bitwise_or.Scalar", "aten.bitwise_or.Scalar_Tensor")
def bitwise_or(self, other, meta_outputs=None):
    return _bits(ge.BitwiseOr, ge.LogicalOr, self, other, meta_outputs)


@converter("aten.bitwise_xor.Tensor", "aten.bitwise_xor.Scalar", "aten.bitwise_xor.Scalar_Tensor")
def bitwise_xor(self, other, meta_outputs=None):
    return _bits(ge.BitwiseXor, ge.NotEqual, self, other, meta_outputs)


@converter("aten.logical_xor.default")
def logical_xor(self, other, meta_outputs=None):
    return ge.NotEqual(*promote(self, other, to=DT.DT_BOOL))


@converter(
    "aten.__lshift__.Tensor",
    "aten.__lshift__.Scalar",
    "aten.bitwise_left_shift.Tensor",
    "aten.bitwise_left_shift.Tensor_Scalar",
    "aten.bitwise_left_shift.Scalar_Tensor",
)
def left_shift(self, other, meta_outputs=None):
    return _both(ge.LeftShift, self, other, meta_outputs)


@converter(
    "aten.__rshift__.Tensor",
    "aten.__rshift__.Scalar",
    "aten.bitwise_right_shift.Tensor",
    "aten.bitwise_right_shift.Tensor_Scalar",
    "aten.bitwise_right_shift.Scalar_Tensor",
)
def right_shift(self, other, meta_outputs=None):
    return _both(ge.RightShift, self, other, meta_outputs)


@converter("aten.erfc.default")
def erfc(self, meta_outputs=None):
    return ge.Erfc(promote(self, to=meta_outputs.dtype))


@converter("aten.gcd.default")
def gcd(self, other, meta_outputs=None):
    return _both(ge.Gcd, self, other, meta_outputs)


@converter("aten.nextafter.default")
def nextafter(self, other, meta_outputs=None):
    return _both(ge.NextAfter, self, other, meta_outputs)


@converter("aten.igamma.default")
def igamma(self, other, meta_outputs=None):
    return _both(ge.Igamma, self, other, meta_outputs)


@converter("aten.igammac.default")
def igammac(self, other, meta_outputs=None):
    return _both(ge.Igammac, self, other, meta_outputs)


@converter("aten.special_zeta.default")
def zeta(self, other, meta_outputs=None):
    return _both(ge.Zeta, self, other, meta_outputs)


@converter("aten.special_ndtri.default")
def ndtri(self, meta_outputs=None):
    return ge.Ndtri(promote(self, to=meta_outputs.dtype))


@converter("aten.special_i0e.default")
def i0e(self, meta_outputs=None):
    return ge.BesselI0e(promote(self, to=meta_outputs.dtype))


@converter("aten.special_i1e.default")
def i1e(self, meta_outputs=None):
    return ge.BesselI1e(promote(self, to=meta_outputs.dtype))


@converter("aten.complex.default")
def complex_(real, imag, meta_outputs=None):
    return ge.Complex(real, imag, Tout=meta_outputs.dtype)


@converter("aten.sub.Scalar")
def sub_scalar(self, other, alpha=1, meta_outputs=None):
    return _both(ge.Sub, self, other * alpha, meta_outputs)
