"""The stream that everything goes to."""

from __future__ import annotations

from typing import Any

from tinyweb.native_runtimes.cuda.driver import NOT_READY, CudaError, Driver
from tinyweb.native_runtimes.runs import Runs

VARIABLE = "TINYWEB_CUDA_SECONDS"


class Queue(Runs):
    """Runs of kernels on a stream of its own."""

    def __init__(self, driver: Driver) -> None:
        super().__init__(VARIABLE)
        self._driver = driver
        self.stream: Any = driver.cuStreamCreate(1)  # CU_STREAM_NON_BLOCKING

    def _new_event(self) -> Any:
        return self._driver.cuEventCreate(2)  # CU_EVENT_DISABLE_TIMING

    def _record(self, event: Any) -> None:
        self._driver.cuEventRecord(event, self.stream)

    def _happened(self, event: Any) -> bool:
        error = self._driver.module.cuEventQuery(event)[0]
        if error and int(error) != NOT_READY:
            raise CudaError("cuEventQuery", int(error), error.name)
        return not error
