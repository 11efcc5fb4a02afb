"""The error function and its complement."""

from __future__ import annotations

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import UOp
from tinyweb.graph.lower.transcendental.build import (
    below,
    cut,
    format_of,
    horner,
    is_nan,
    muladd,
    opaque,
    quotient,
    reciprocal,
    scale,
    sign_bit,
    size_bits,
    with_sign,
)
from tinyweb.graph.lower.transcendental.exponential import exponent_and_rest

F32, F64 = dtypes.float32, dtypes.float64

# erf(x) = x + x * p(x**2) on [-7/8, 7/8]
ERF = {
    F32: (0.12837916612625122, -0.3761262893676758, 0.11283622682094574, -0.026855364441871643,
          0.005190941970795393, -0.0008026440045796335, 7.867855310905725e-05),
    F64: (0.1283791670955126, -0.37612638903183754, 0.11283791670955111, -0.026866170645126856,
          0.005223977625377003, -0.0008548327017688801, 0.00012055332654250995, -1.4925637856512346e-05,
          1.6461786883217213e-06, -1.6359932344538222e-07, 1.4734652300040639e-08, -1.1708907238550248e-09,
          6.619687197189831e-11),
}  # fmt: skip
# erfc(x) = exp(-p(x)) on [7/8, 4]
ERF_TAIL_F32 = (-0.00016216756193898618, 1.1294541358947754, 0.633470892906189, 0.10814256221055984,
                -0.02502988837659359, 0.004136867821216583, -0.000427373219281435, 2.0479861632338725e-05)  # fmt: skip
# erfc(x) = exp(-x**2) / (1 + 2x) * p((x - k) / (x + k)) from 1/2 to where it vanishes (Shepherd and Laframboise 1981)
ERFC = {
    F32: (1.2769783735275269, -0.09276376664638519, -0.16603082418441772, 0.16404874622821808,
          -0.05421125143766403, -0.008005723357200623, 0.008659196086227894, 0.0011465504067018628,
          -0.0012656847247853875, -0.00022541757789440453),
    F64: (1.2329951186255526, -0.1396211168405625, 0.01537965210261902, 0.06809705425469048, -0.10103906603625305,
          0.09373283499844391, -0.06633036581362785, 0.0371675155355914, -0.016197734037986435,
          0.005031969999297861, -0.0007577734506917158, -0.00019925684309337534, 0.00015062250351545906,
          -2.439853965978706e-05, -1.1224752928919429e-05, 5.70768358598063e-06, 2.995873858202565e-07,
          -8.212918548892285e-07, 6.700237468052265e-08, 1.0474462028613549e-07, -1.221740424942182e-08,
          -1.0181521649379426e-08),
}  # fmt: skip
CENTRE = {F32: 2.0, F64: 4.0}
END = {F32: 10.125, F64: 27.25}  # here erfc is less than half of the smallest number


def erf(x: UOp, exact: bool) -> UOp:
    f, size = format_of(x), size_bits(x)
    a = size.bitcast(x.dtype)
    limit = 4.0 if x.dtype is F32 else 6.0  # beyond it the result rounds to 1
    bounded = below(size, f, limit).where(a, x.lift(limit))
    if x.dtype is F32:
        n, q = exponent_and_rest(-horner(ERF_TAIL_F32, bounded), exact)
        rest = scale(q + 1.0, n)
    else:
        rest = _complement(bounded, exact)
    z, larger = a * a, a * 16.0  # so that no part of the sum is subnormal before the sum is
    near = muladd(larger, horner(ERF[x.dtype], z), larger) * 0.0625
    return is_nan(size, f).where(x, with_sign(below(size, f, 0.875).where(near, 1.0 - rest), sign_bit(x)))


def erfc(x: UOp, exact: bool) -> UOp:
    f, size = format_of(x), size_bits(x)
    z = x * x
    near = 1.0 - muladd(x, horner(ERF[x.dtype], z), x)
    end = END[x.dtype]
    tail = _complement(below(size, f, end).where(size.bitcast(x.dtype), x.lift(end)), exact)
    far = sign_bit(x).equal(0).where(tail, 2.0 - tail)
    return is_nan(size, f).where(x, below(size, f, 0.5).where(near, far))


def _complement(a: UOp, exact: bool) -> UOp:
    """erfc of 1/2 ≤ a ≤ END: the square of a is taken with all its digits."""
    high = cut(a)
    n, q = exponent_and_rest(-(high * high), exact, -((a - high) * (a + high)))
    centre, (first, *others) = CENTRE[a.dtype], ERFC[a.dtype]
    t = quotient(a + -centre, a + centre, exact)
    # numerator and divisor with what their last additions lose, then the quotient and its remainder
    varying, twice = t * horner(others, t), a * 2.0
    numerator, divisor = opaque(varying + first, exact), opaque(twice + 1.0, exact)
    numerator_low, divisor_low = varying - (numerator + -first), 1.0 - (divisor - twice)
    over = reciprocal(divisor)
    p, d = cut(numerator * over), cut(divisor)
    remainder = ((numerator - p * d) - p * ((divisor - d) + divisor_low)) + numerator_low
    return scale(p + muladd(p, q, remainder * over * (q + 1.0)), n)
