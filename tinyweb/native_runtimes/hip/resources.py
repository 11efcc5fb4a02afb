"""What a kernel takes of a GPU, read from its code object, and which of its instructions are wide ones.

The format is in LLVM's "User Guide for AMDGPU Backend" (code object metadata): a note of the ELF file with a
MessagePack map. Instructions are counted in the assembly that the code object was made from.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tinyweb.errors import DeviceError
from tinyweb.native_runtimes.hip.compile import CodeObject

METADATA_NOTE = 32  # NT_AMDGPU_METADATA
PT_NOTE = 4
# what is counted, by the name of the field in `Resources`: 16 bytes from memory and from LDS, as GCN and RDNA spell it
COUNTED = {
    "wide_loads": re.compile(r"(global|flat|buffer)_load_(dwordx4|b128)"),
    "wide_shared_loads": re.compile(r"ds_(read|load)_b128|ds_(read2|load_2addr)_b64"),
    "dots": re.compile(r"v_dot\d"),
    "matrices": re.compile(r"v_(mfma|wmma|smfmac|swmmac)_"),
}


@dataclass(frozen=True)
class Resources:
    """What one kernel takes. `vgprs` and `agprs`: vector registers of a lane; `sgprs`: scalar registers of a wave;
    `spills`: registers that do not fit and go to memory; bytes of scratch memory for each thread and of shared memory
    (LDS) for each workgroup; `waves` that a SIMD holds at once, 0 where only HIPRTC knows, as are the counts of
    instructions in the program's text: of all, and of those in COUNTED.
    """

    name: str
    arguments: int
    argument_bytes: int
    vgprs: int
    agprs: int
    sgprs: int
    spills: int
    scratch_bytes: int
    shared_bytes: int
    wave: int
    waves: int
    instructions: int
    wide_loads: int
    wide_shared_loads: int
    dots: int
    matrices: int


def resources(code: CodeObject) -> dict[str, Resources]:
    """What the kernels of a code object take, by name; DeviceError where it is none."""
    try:
        return {k[".name"]: _of_kernel(k, code.assembly) for k in metadata(code.binary)["amdhsa.kernels"]}
    except (KeyError, TypeError, AttributeError) as error:
        raise DeviceError(f"a code object for an AMD GPU cannot be read: its metadata is damaged ({error})") from None


def _of_kernel(kernel: Mapping[str, Any], assembly: str) -> Resources:
    name = kernel[".name"]
    counts: Counter[str] = Counter()
    body = re.search(rf"^{re.escape(name)}:(.*?)^\.Lfunc_end", assembly, re.DOTALL | re.MULTILINE)
    for line in body[1].splitlines() if body else ():
        if re.match(r"\t[a-z]", line):
            counts["instructions"] += 1
            counts.update(field for field, pattern in COUNTED.items() if pattern.match(line, 1))
    after = assembly[body.end() :] if body else ""
    waves = re.search(r"^; Occupancy: (\d+)", after, re.MULTILINE)
    return Resources(
        name=name,
        arguments=len(kernel.get(".args", [])),
        argument_bytes=kernel[".kernarg_segment_size"],
        vgprs=kernel[".vgpr_count"],
        agprs=kernel.get(".agpr_count", 0),
        sgprs=kernel[".sgpr_count"],
        spills=kernel[".vgpr_spill_count"] + kernel[".sgpr_spill_count"],
        scratch_bytes=kernel[".private_segment_fixed_size"],
        shared_bytes=kernel[".group_segment_fixed_size"],
        wave=kernel[".wavefront_size"],
        waves=int(waves[1]) if waves else 0,
        instructions=counts["instructions"],
        **{field: counts[field] for field in COUNTED},
    )


def metadata(binary: bytes) -> dict[str, Any]:
    """The note of a 64-bit little-endian ELF file that describes its kernels; DeviceError where there is none."""
    try:
        if binary[:6] != b"\x7fELF\x02\x01":
            raise ValueError("it is no 64-bit ELF file")
        (begin,), (size, count) = struct.unpack_from("<Q", binary, 32), struct.unpack_from("<HH", binary, 54)
        for i in range(count):
            kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", binary, begin + i * size)
            end = offset + length
            while kind == PT_NOTE and offset + 12 <= end:
                name_bytes, data_bytes, note = struct.unpack_from("<III", binary, offset)
                data = offset + 12 + -(-name_bytes // 4) * 4
                if note == METADATA_NOTE and binary[offset + 12 :].startswith(b"AMDGPU\0"):
                    found = _Reader(binary[data : data + data_bytes]).value()
                    if isinstance(found, dict):
                        return found
                offset = data + -(-data_bytes // 4) * 4
        raise ValueError("it has no note about kernels")
    except (IndexError, OverflowError, ValueError, struct.error) as error:
        raise DeviceError(f"a code object for an AMD GPU cannot be read: {error}") from None


class _Reader:
    """The part of MessagePack that metadata uses: maps, arrays, texts, integers, booleans, nil."""

    WIDTHS = {  # noqa: RUF012
        0xCC: "B", 0xCD: "H", 0xCE: "I", 0xCF: "Q", 0xD0: "b", 0xD1: "h", 0xD2: "i", 0xD3: "q",
        0xD9: "B", 0xDA: "H", 0xDB: "I", 0xDC: "H", 0xDD: "I", 0xDE: "H", 0xDF: "I",
    }  # fmt: skip
    CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}  # noqa: RUF012

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def value(self, depth: int = 0) -> Any:
        if depth > 16:
            raise ValueError("its metadata is nested too deeply")
        head = self.data[self.at]
        self.at += 1
        if head in self.CONSTANTS:
            return self.CONSTANTS[head]
        if head < 0x80:
            return head
        if head >= 0xE0:
            return head - 0x100
        if head < 0xA0:
            kind, count = "map" if head < 0x90 else "array", head & 15
        elif head < 0xC0:
            kind, count = "text", head & 31
        elif head in self.WIDTHS:
            (count,) = struct.unpack_from(">" + self.WIDTHS[head], self.data, self.at)
            self.at += struct.calcsize(self.WIDTHS[head])
            kind = "number" if head < 0xD9 else "text" if head < 0xDC else "array" if head < 0xDE else "map"
        else:
            raise ValueError(f"its metadata has a value of the unknown kind {head:#x}")
        return self._of(kind, count, depth)

    def _of(self, kind: str, count: int, depth: int) -> Any:
        if kind == "number":
            return count
        if kind == "array":
            return [self.value(depth + 1) for _ in range(count)]
        if kind == "map":
            pairs = ((self.value(depth + 1), self.value(depth + 1)) for _ in range(count))
            return {str(key): value for key, value in pairs}
        text = self.data[self.at : self.at + count]
        if len(text) < count:
            raise ValueError("its metadata ends in the middle of a text")
        self.at += count
        return text.decode(errors="replace")
