"""The matrix instructions of GPUs as data: how the threads of a subgroup hold what they multiply.

NVIDIA: PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions" (mma.sync; two of m16n8 side by side, or more of
Turing's smaller ones, are one row here, so that each operand is four registers), and "Asynchronous Warpgroup Level
Matrix Instructions" (wgmma of sm_90a: four subgroups together, of operands in shared memory). AMD: the CDNA3 and
RDNA3, RDNA4 instruction set manuals (v_mfma, v_wmma).
"""

from __future__ import annotations

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Digit, Fragments, Layout

F16, BF16, F32, I8, I32 = dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.int8, dtypes.int32
E4M3, E5M2 = dtypes.float8_e4m3, dtypes.float8_e5m2


def _nvidia(dtype: DType, short: str, smaller: str = "") -> Fragments:
    """16 × 16 sums of as many steps as 32 bytes have; a register has 4 bytes of one row. `smaller`: the shape of the
    instructions that it is made of, where that is not m16n8 of all steps: their registers are some of the same."""
    n = 32 // dtype.bits
    beside = (Digit("e", n),) if n > 1 else ()
    eight = Digit("y", 8)
    a = Layout((eight, Digit("e", 2, n)), (*beside, Digit("x", 4), Digit("e", 2, 2 * n)))
    b = Layout((eight, Digit("e", 2, 2 * n)), (*beside, Digit("x", 4), Digit("e", 2, n)))
    sums = Layout((eight, Digit("e", 2, 2)), (Digit("e", 2), Digit("x", 4), Digit("e", 2, 4)))
    name = f"mma_sync_{smaller and f'{smaller}_'}16x16x{8 * n}_{short}"
    return Fragments(name, (4, 8), a, b, sums)


def _wgmma(columns: int, dtype: DType, held: bool = False) -> Fragments:
    """64 rows in four subgroups of 16, whose sums lie as those of mma.sync, and so does A where it is held in
    registers; as many steps as 32 bytes have."""
    rows = (Digit("y", 8), Digit("e", 2, 2), Digit("z", 4))
    beside = (Digit("e", 2), Digit("x", 4), *((Digit("e", columns // 8, 4),) if columns > 8 else ()))
    steps = 256 // dtype.bits
    a, b = (Layout((Digit("e", n, steps),), (Digit("e", steps),)) for n in (64, columns))
    if held:
        a = Layout(rows, (Digit("e", 2), Digit("x", 4), Digit("e", 2, 4)))
    name = f"wgmma_{'held_' if held else ''}64x{columns}x{steps}_{dtype.short}"
    return Fragments(name, (4, 8, 4), a, b, Layout(rows, beside), True, held)


def _mfma(steps: int, short: str) -> Fragments:
    """16 × 16 sums in 64 threads; a quarter of the steps lies beside each other."""
    n = steps // 4
    operand = Layout((Digit("x", 16),), (*((Digit("e", n),) if n > 1 else ()), Digit("y", 4)))
    sums = Layout((Digit("e", 4), Digit("y", 4)), (Digit("x", 16),))
    return Fragments(f"mfma_16x16x{steps}_{short}", (16, 4), operand, operand, sums)


def _wmma11(short: str) -> Fragments:
    """16 × 16 sums in 32 threads, each half of which has all of both operands."""
    operand = Layout((Digit("x", 16),), (Digit("e", 16),))
    sums = Layout((Digit("y", 2), Digit("e", 8)), (Digit("x", 16),))
    return Fragments(f"wmma11_16x16x16_{short}", (16, 2), operand, operand, sums)


def _wmma12(short: str) -> Fragments:
    """16 × 16 sums in 32 threads, each half of which has half of the steps."""
    operand = Layout((Digit("x", 16),), (Digit("e", 8), Digit("y", 2)))
    sums = Layout((Digit("e", 8), Digit("y", 2)), (Digit("x", 16),))
    return Fragments(f"wmma12_16x16x16_{short}", (16, 2), operand, operand, sums)


# how operands and sums lie, the type of both operands, and that of the sums
ROWS: tuple[tuple[Fragments, DType, DType], ...] = (
    *((_nvidia(t, t.short), t, F32) for t in (F16, BF16, E4M3, E5M2)),
    (_nvidia(F32, "tf32"), F32, F32),
    (_nvidia(I8, "i8"), I8, I32),
    (_nvidia(F16, "f16", "m16n8k8"), F16, F32),
    (_nvidia(I8, "i8", "m8n8k16"), I8, I32),
    *((_wgmma(n, t, held), t, F32) for held in (False, True) for t in (F16, BF16) for n in range(256, 0, -8)),
    *((_wgmma(n, I8), I8, I32) for n in (*range(256, 32, -16), 32, 24, 16, 8)),
    *((_mfma(16, t.short), t, F32) for t in (F16, BF16)),
    *((_mfma(32, t.short), t, F32) for t in (E4M3, E5M2)),
    (_mfma(4, "f32"), F32, F32),
    *((_mfma(n, "i8"), I8, I32) for n in (32, 16)),
    *((_wmma11(t.short), t, F32) for t in (F16, BF16)),
    (_wmma11("i8"), I8, I32),
    *((_wmma12(t.short), t, F32) for t in (F16, BF16, E4M3, E5M2)),
    (_wmma12("i8"), I8, I32),
)
