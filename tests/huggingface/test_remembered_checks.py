"""Tests that the outcome of a start-up check is remembered, and when it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lm_eval.models.huggingface import model as model_module
from lm_eval.models.huggingface import remembered_checks
from tests.huggingface.conftest import ARCHITECTURES, GROUPED, Make, make_model, torch


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """Returns a list to which every check of a model is appended; all checks are remembered."""
    monkeypatch.setenv("LMEVAL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(remembered_checks, "MIN_SECONDS", 0.0)
    done: list[Any] = []
    check = model_module.check_execution_modes

    def counted(network: Any, *args: Any, **kwargs: Any) -> Any:
        done.append(network)
        return check(network, *args, **kwargs)

    monkeypatch.setattr(model_module, "check_execution_modes", counted)
    return done


@pytest.mark.parametrize("name", ["llama", "bloom", "mistral-window"])
def test_a_model_is_checked_once(name: str, make_lm: Make, checks: list[Any]) -> None:
    model = make_model(*ARCHITECTURES[name][:3])
    first = make_lm(model).execution_modes
    torch.manual_seed(5)  # other weights do not matter
    again = make_lm(make_model(*ARCHITECTURES[name][:3])).execution_modes
    assert again == first
    assert len(checks) == 1


def test_what_could_change_the_outcome_leads_to_a_new_check(
    make_lm: Make, checks: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    llama = ARCHITECTURES["llama"]
    make_lm(make_model(*llama[:3]))
    make_lm(make_model(*llama[:2], {**GROUPED, "rope_theta": 77.0}))
    make_lm(make_model(*llama[:3]), prefix_sharing="off")
    make_lm(make_model(*llama[:3]).to(torch.bfloat16))
    torch.set_float32_matmul_precision("high")
    try:
        make_lm(make_model(*llama[:3]))
    finally:
        torch.set_float32_matmul_precision("highest")
    monkeypatch.setattr(remembered_checks, "__version__", "another")
    make_lm(make_model(*llama[:3]))
    assert len(checks) == 6


def test_a_compiler_that_is_installed_later_leads_to_a_new_check_on_a_gpu(
    llama: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    def keys() -> list[str | None]:
        devices = [torch.device("cuda"), torch.device("cpu")]
        return [remembered_checks.check_key(llama, device, {}) for device in devices]

    before = keys()
    (tmp_path / "gcc").write_text("#!/bin/sh\n")
    (tmp_path / "gcc").chmod(0o755)
    after = keys()
    assert after[0] != before[0]
    assert after[1] == before[1]


def test_outcomes_with_our_kernels_are_not_used_without_them(
    llama: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU they run in Triton's interpreter, which an environment variable turns on."""
    keys = []
    for compiled in (False, True):
        monkeypatch.setattr(remembered_checks.accelerated, "can_compile", lambda c=compiled: c)
        keys.append(remembered_checks.check_key(llama, torch.device("cpu"), {}))
    assert keys[0] != keys[1]


def test_a_model_with_hooks_is_always_checked(make_lm: Make, checks: list[Any]) -> None:
    for _ in range(2):
        model = make_model(*ARCHITECTURES["llama"][:3])
        model.model.register_forward_hook(lambda *given: None)
        make_lm(model)
    assert len(checks) == 2


def test_a_damaged_file_is_replaced(make_lm: Make, checks: list[Any], tmp_path: Path) -> None:
    def make() -> Any:
        return make_lm(make_model(*ARCHITECTURES["llama"][:3])).execution_modes

    expected = make()
    (file,) = (tmp_path / "model_checks").iterdir()
    file.write_text("{}")
    assert make() == expected
    assert make() == expected
    assert len(checks) == 2


def test_quick_checks_are_not_remembered(
    make_lm: Make, checks: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered_checks, "MIN_SECONDS", 1000.0)
    make_lm()
    assert not (tmp_path / "model_checks").exists()
