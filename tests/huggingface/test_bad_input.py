"""Tests that user mistakes give clear errors, as early as possible."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from lm_eval.config.run import RunConfig
from lm_eval.errors import ConfigError, EvalError, ModelError
from lm_eval.models.demo.model import WEIGHTS
from tests.conftest import Command
from tests.huggingface.conftest import ARCHITECTURES, GROUPED, Make, ask, make_model, torch


def test_a_package_that_a_model_needs_is_named() -> None:
    from lm_eval.models.huggingface.loading import loading_error

    missing = ImportError("Please install gguf>=0.10.0 to load a GGUF checkpoint.\nMore.")
    told = str(loading_error(missing, "model", str(WEIGHTS), None))
    assert told.startswith(f"the model {str(WEIGHTS)!r} needs a package that is not installed: ")
    assert told.endswith("Please install gguf>=0.10.0 to load a GGUF checkpoint.")


def test_no_such_model_is_said_and_that_there_is_no_hub(lm_eval_command: Command) -> None:
    done = lm_eval_command(
        "run",
        "--model",
        "hf",
        "--model_args",
        "pretrained=nobody/nothing",
        "--tasks",
        "demo_pairs",
        "--device",
        "cpu",
    )
    assert done.returncode == 2
    assert "cannot find the model 'nobody/nothing'" in done.stderr
    assert "HF_HUB_OFFLINE" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_such_folder_is_said() -> None:
    from lm_eval.models.huggingface import HFLM

    with pytest.raises(ModelError, match="no such folder"):
        HFLM(pretrained="./not/there/at/all", device="cpu")


def test_a_folder_without_a_model_is_said(tmp_path: Path) -> None:
    from lm_eval.models.huggingface import HFLM

    with pytest.raises(ModelError, match="does not contain a model that can be loaded"):
        HFLM(pretrained=str(tmp_path), device="cpu")


def test_a_tokenizer_of_another_model_is_refused(make_lm: Make) -> None:
    small = make_model("LlamaForCausalLM", "LlamaConfig", {**GROUPED, "vocab_size": 300})
    with pytest.raises(ModelError, match=r"the tokenizer does not fit the model.*300 embeddings"):
        make_lm(small)


def test_more_than_the_model_can_read_is_refused(make_lm: Make) -> None:
    with pytest.raises(ModelError, match=r"max_length=5000 is more than the model can read.*256"):
        make_lm(max_length=5000)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_an_absent_device_is_said() -> None:
    from lm_eval.models.huggingface import HFLM

    with pytest.raises(ModelError, match="finds no CUDA device"):
        HFLM(pretrained=str(WEIGHTS), device="cuda")
    with pytest.raises(ConfigError, match="torch does not know the device 'abacus'"):
        HFLM(pretrained=str(WEIGHTS), device="abacus")


@pytest.mark.parametrize("sharing", [True, False])
def test_scores_that_are_not_numbers_name_the_request(
    make_lm: Make, tokenizer: Any, sharing: bool
) -> None:
    model = make_model(*ARCHITECTURES["llama"][:3])
    lm = make_lm(model, prefix_sharing=sharing)
    bad = lm.tok_encode(" seven")[0]
    with torch.no_grad():
        model.model.embed_tokens.weight[bad] = torch.nan
    asked = [
        ask("loglikelihood", "Tom has", " three apples", task="good", number=1),
        ask("loglikelihood", "Tom has", " seven apples", task="broken", number=42),
    ]
    with pytest.raises(ModelError, match=r"task 'broken', document 42: .*not numbers"):
        lm.loglikelihood(asked)
    with pytest.raises(ModelError, match=r"task 'broken', document 42: .*not numbers"):
        lm.loglikelihood_rolling(
            [ask("loglikelihood_rolling", "Tom has seven apples", task="broken", number=42)]
        )


def test_an_answer_of_no_tokens_is_refused(make_lm: Make) -> None:
    with pytest.raises(
        ModelError, match="task 'a_task', document 7: the continuation '' has no tokens"
    ):
        make_lm().loglikelihood([ask("loglikelihood", "Tom has", "")])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float17"}, "torch does not know the dtype 'float17'"),
        ({"backend": "quantum"}, "'causal', 'seq2seq' or 'default'"),
        ({"truncation_side": "up"}, "'left' or 'right'"),
        ({"enable_thinking": True}, "needs think_end_token"),
        ({"autogptq": True}, "transformers loads GPTQ weights by itself"),
        ({"prefix_sharing": "maybe"}, "prefix_sharing must be 'on' or 'off'"),
        ({"rolling_stride": 0}, "between 1 and max_length"),
        ({"peft": "a", "delta": "b"}, "exclude each other"),
        ({"no_such_option": 3}, "neither HFLM nor the model accepts an argument 'no_such_option'"),
        ({"max_lenght": 64}, r"no.* 'max_lenght'\. Did you mean 'max_length'\?"),
        ({"batch_size": 0}, "'auto' or an integer of at least 1, not 0"),
        ({"batch_size": "many"}, "'auto' or an integer of at least 1, not 'many'"),
        ({"max_batch_size": 0}, "max_batch_size"),
        ({"max_length": "long"}, "max_length must be an integer of at least 1"),
        ({"max_length": -4}, "max_length must be an integer of at least 1"),
        ({"prefix_token_id": 99999}, "not a token of the model, which has 1024 embeddings"),
        ({"softmax_dtype": "float17"}, "torch does not know the dtype 'float17'"),
        ({"gguf_file": "none.gguf"}, r"there is no file none\.gguf in the folder"),
        ({"peft": "."}, "does not contain an adapter that can be loaded|needs the package peft"),
        ({"device": "meta"}, "torch cannot compute there"),
        ({"device": "xpu"}, "torch cannot compute there"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    from lm_eval.models.huggingface import HFLM

    with pytest.raises(EvalError, match=message):
        HFLM(**{"pretrained": str(WEIGHTS), "device": "cpu", **options})


def test_a_hub_that_cannot_be_reached_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub is contacted once, without five retries and pauses."""
    from huggingface_hub import constants

    from lm_eval.data import hub
    from lm_eval.models.huggingface import HFLM

    monkeypatch.setattr(hub, "unreachable", lambda url: "the hub sleeps")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("it waits"))
    with pytest.raises(ModelError, match=r"cannot find the model 'nobody/nothing'.*the hub sleeps"):
        HFLM(pretrained="nobody/nothing", device="cpu")
    assert constants.HF_HUB_OFFLINE is False


def test_loading_is_quiet_in_a_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    from lm_eval.models.huggingface import HFLM

    HFLM(pretrained=str(WEIGHTS), device="cpu")
    assert "it/s" not in capfd.readouterr().err


@pytest.mark.parametrize("kind", ["loglikelihood", "loglikelihood_rolling", "generate_until"])
def test_a_token_that_the_model_does_not_have_is_named(
    make_lm: Make, tokenizer: Any, kind: str
) -> None:
    """Tokens that only the tokenizer has are harmless until a text contains one."""
    wider = copy.deepcopy(tokenizer)
    wider.add_tokens(["<picture>"])
    lm = make_lm(tokenizer=wider)
    rest = {"loglikelihood": (" has",), "generate_until": ({"max_gen_toks": 2},)}.get(kind, ())
    getattr(lm, kind)([ask(kind, "Tom", *rest)])
    with pytest.raises(ModelError, match=r"'<picture>' \(1024\).*1024 embeddings.*'Tom <picture>"):
        getattr(lm, kind)([ask(kind, "Tom <picture> here", *rest)])


def test_arguments_that_a_given_model_cannot_take_are_told(
    make_lm: Make, caplog: pytest.LogCaptureFixture
) -> None:
    make_lm(max_lenght=64)
    assert "have no effect: max_lenght." in caplog.text


def test_a_model_that_states_no_length_takes_any(make_lm: Make) -> None:
    settings = {"vocab_size": 1024, "d_model": 32, "n_layer": 1, "n_head": 4, "d_inner": 64}
    model = make_model("XLNetLMHeadModel", "XLNetConfig", settings)
    assert model.config.max_position_embeddings == -1
    assert make_lm(model, max_length=4000).max_length == 4000


def test_a_length_of_one_token_is_read(make_lm: Make) -> None:
    ((score, _),) = make_lm(max_length=1).loglikelihood([ask("loglikelihood", "Tom", " has")])
    assert score < 0


def test_a_missing_chat_template_is_found_before_the_weights_are_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The demo model is a folder that transformers can load, without a chat template."""
    from lm_eval.evaluator import run_evaluation
    from lm_eval.models.huggingface import loading

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(loading, "load_model", refuse)
    run = RunConfig(
        model="hf",
        model_args=f"pretrained={WEIGHTS}",
        tasks=["demo_choice"],
        apply_chat_template=True,
    )
    with pytest.raises(ModelError, match=r"has no chat template\. Run without --apply_chat_temp"):
        run_evaluation(run)


def test_a_missing_chat_template_is_said(make_lm: Make) -> None:
    with pytest.raises(ModelError, match="has no chat template"):
        make_lm().apply_chat_template([{"role": "user", "content": "Tom"}])
