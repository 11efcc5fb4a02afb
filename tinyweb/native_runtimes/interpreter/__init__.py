"""The interpreter: programs carried out in NumPy, all invocations of a grid at once. The oracle of the other
runtimes.
"""

from tinyweb.native_runtimes.interpreter.runtime import InterpreterRuntime

__all__ = ["InterpreterRuntime"]
