"""`--model vllm` with the fake package, for the processes of several engines, which import this."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from lm_eval.models.vllm_causallms import VLLM
from tests.engines import fake_vllm

DIES, KILLED = "FAKE_VLLM_DIES", "FAKE_VLLM_KILLED"
"""Environment variables: the device whose engine fails, or is killed, after one step."""


class CopiedVLLM(VLLM):
    """Runs the fake engine in its own processes; its counters tell which device it has."""

    def _start(self) -> Any:
        sys.modules.update(fake_vllm.package())
        llm = super()._start()
        device = os.environ["CUDA_VISIBLE_DEVICES"]
        if os.environ.get(DIES) == device:
            llm.llm_engine.dies_after = 1
        if os.environ.get(KILLED) == device:
            step = llm.llm_engine.step

            def step_and_die() -> Any:
                outputs = step()
                llm.llm_engine.step = lambda: os.kill(os.getpid(), signal.SIGKILL)
                return outputs

            llm.llm_engine.step = step_and_die
        return llm

    def counters(self) -> dict[str, float]:
        found = super().counters()
        if self.copies is None:
            found[f"device {os.environ['CUDA_VISIBLE_DEVICES']}"] = found["vllm:request_success"]
        return found
