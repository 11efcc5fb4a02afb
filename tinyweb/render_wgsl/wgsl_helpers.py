"""WGSL functions that a kernel may need, instantiated for `n` lanes; `F` and `U` are its float and unsigned types."""

from __future__ import annotations

from string import Template

from tinyweb.render_wgsl.wgsl_types import type_name

# NaN in either operand gives NaN: that of b because nothing is greater. The test is on the bits: compilers may assume
# that there are no NaNs.
MAXIMUM = Template("""\
fn maximum_x${n}(a: ${F}, b: ${F}) -> ${F} {
  return select(b, a, (a > b) | ((bitcast<${U}>(a) & ${U}(0x7fffffffu)) > ${U}(0x7f800000u)));
}
""")

# The bits of a half to a single: the builtin is exact.
F16_TO_F32 = Template("""\
fn f16_to_f32_x${n}(half: ${U}) -> ${F} {
  return ${F}(${unpacked});
}
""")

# A single to the bits of a half, to nearest even, in integers: the builtin leaves rounding and overflow open.
F32_TO_F16 = Template("""\
fn f32_to_f16_x${n}(single: ${F}) -> ${U} {
  let bits = bitcast<${U}>(single);
  let size = bits & ${U}(0x7fffffffu);
  let normal = (size - ${U}(0x38000000u) + ${U}(0xfffu) + ((size >> ${U}(13u)) & ${U}(1u))) >> ${U}(13u);
  let shift = min(${U}(126u) - (min(size, ${U}(0x38800000u)) >> ${U}(23u)), ${U}(25u));
  let mantissa = (size & ${U}(0x7fffffu)) | ${U}(0x800000u);
  let odd = (mantissa >> shift) & ${U}(1u);
  let subnormal = (mantissa + (${U}(1u) << (shift - ${U}(1u))) - ${U}(1u) + odd) >> shift;
  var half = select(normal, subnormal, size < ${U}(0x38800000u));
  half = select(half, ${U}(0x7c00u), size >= ${U}(0x477ff000u));
  half = select(half, ${U}(0x7e00u) | ((size >> ${U}(13u)) & ${U}(0x1ffu)), size > ${U}(0x7f800000u));
  return half | ((bits >> ${U}(16u)) & ${U}(0x8000u));
}
""")

# A single as the nearest number that a half holds, to even: WGSL leaves open how a conversion rounds, but this one is
# exact then. Where 0.5 is added, the last place is the smallest half.
ROUND_F16 = Template("""\
fn round_f16_x${n}(single: ${F}) -> ${F} {
  let size = bitcast<${U}>(single) & ${U}(0x7fffffffu);
  let normal = (size + ${U}(0xfffu) + ((size >> ${U}(13u)) & ${U}(1u))) & ${U}(0xffffe000u);
  let count = bitcast<${U}>(bitcast<${F}>(size) + ${F}(0.5f)) - ${U}(0x3f000000u);
  var half = select(normal, bitcast<${U}>(${F}(count) * ${F}(0x1p-24f)), size < ${U}(0x38800000u));
  half = select(half, max(size, ${U}(0x7f800000u)), size >= ${U}(0x477ff000u));
  return bitcast<${F}>(half | (bitcast<${U}>(single) & ${U}(0x80000000u)));
}
""")


def instantiate(template: Template, n: int) -> str:
    """The function for `n` lanes."""
    unpacked = ", ".join(f"unpack2x16float(half{'' if n == 1 else '.' + 'xyzw'[i]}).x" for i in range(n))
    return template.substitute(n=n, F=type_name("f32", n), U=type_name("u32", n), unpacked=unpacked)
