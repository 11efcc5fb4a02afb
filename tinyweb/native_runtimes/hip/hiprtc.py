"""Compile one source with HIPRTC: python -m tinyweb.native_runtimes.hip.hiprtc LIBRARY CHIP SOURCE OUTPUT FLAGS…"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path


def main(library: str, chip: str, source: str, output: str, *flags: str) -> int:
    """0 once OUTPUT is written; 1 with the compiler's log where it refuses."""
    rtc = ctypes.CDLL(library)
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    rtc.hiprtcCreateProgram(ctypes.byref(program), Path(source).read_bytes(), b"kernels.hip", 0, None, None)
    options = [f"--gpu-architecture={chip}", *flags]
    given = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
    if rtc.hiprtcCompileProgram(program, len(options), given):
        rtc.hiprtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value + 1)
        rtc.hiprtcGetProgramLog(program, log)
        print(log.value.decode(errors="replace"), file=sys.stderr)
        return 1
    rtc.hiprtcGetCodeSize(program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    rtc.hiprtcGetCode(program, code)
    Path(output).write_bytes(code.raw)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
