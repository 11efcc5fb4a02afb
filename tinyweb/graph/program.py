"""Program: what lowering hands to a renderer, and Launch: what a runtime is asked to do."""

from __future__ import annotations

from dataclasses import dataclass

from tinyweb.dtype import DType
from tinyweb.graph.ir import Size, UOp


@dataclass(frozen=True)
class ParamInfo:
    """One memory argument: the type it is declared as (after packing), its elements in that type, and its use."""

    slot: int
    dtype: DType
    size: int
    read: bool
    written: bool
    atomic: bool = False  # declared as atomic words (masked sub-word stores on WGSL)


@dataclass(frozen=True)
class Layout:
    """Memory that a program reads after its own buffers: what `kernel` stores, made of those in the slots `sources`;
    behind the program's buffers these count the layouts before it. `read`: by the program itself, not only by layouts.
    """

    kernel: UOp
    sources: tuple[int, ...]
    read: bool = True


@dataclass(frozen=True)
class Program:
    """A linear list of UOps for one target, with everything a launch needs to know."""

    name: str  # a valid identifier, equal for equal programs, different for different ones
    uops: tuple[UOp, ...]
    params: tuple[ParamInfo, ...]  # by slot
    variables: tuple[UOp, ...]  # VARIABLE nodes used in uops or grid, by name
    grid: tuple[Size, Size, Size]  # workgroups per dimension.  CPU family: (iterations of the GRID loop, 1, 1)
    workgroup: tuple[int, int, int]
    shared_bytes: int
    schedule: tuple[str, ...] = ()  # what the optimiser did, for people
    layouts: tuple[Layout, ...] = ()  # of frozen parameters, one more parameter for each that is read
