"""What people get wrong is told plainly, before anything is computed where that can be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lm_eval.errors import ConfigError, EvalError, ModelError
from lm_eval.models.demo.model import WEIGHTS
from tests.conftest import Command
from tests.huggingface.conftest import ARCHITECTURES, GROUPED, Make, ask, make_model, torch


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
    assert "there is no model 'nobody/nothing' here" in done.stderr
    assert "HF_HUB_OFFLINE" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_such_folder_is_said() -> None:
    from lm_eval.models.huggingface import HFLM

    with pytest.raises(ModelError, match="no such folder"):
        HFLM(pretrained="./not/there/at/all", device="cpu")


def test_a_folder_without_a_model_is_said(tmp_path: Path) -> None:
    from lm_eval.models.huggingface import HFLM

    with pytest.raises(ModelError, match="does not hold a model that loads"):
        HFLM(pretrained=str(tmp_path), device="cpu")


def test_a_tokenizer_of_another_model_is_refused(make_lm: Make) -> None:
    small = make_model("LlamaForCausalLM", "LlamaConfig", {**GROUPED, "vocab_size": 300})
    with pytest.raises(ModelError, match=r"tokenizer and model disagree.*300 embeddings"):
        make_lm(small)


def test_more_than_the_model_can_read_is_refused(make_lm: Make) -> None:
    with pytest.raises(ModelError, match=r"max_length=5000 is more than the model can read.*256"):
        make_lm(max_length=5000)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_an_absent_device_is_said() -> None:
    from lm_eval.models.huggingface import HFLM

    with pytest.raises(ModelError, match="finds no CUDA device"):
        HFLM(pretrained=str(WEIGHTS), device="cuda")
    with pytest.raises(ConfigError, match="none that torch knows"):
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
        ModelError, match="task 'a_task', document 7: the answer '' becomes no tokens"
    ):
        make_lm().loglikelihood([ask("loglikelihood", "Tom has", "")])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float17"}, "none that torch knows"),
        ({"backend": "quantum"}, "'causal', 'seq2seq' or 'default'"),
        ({"truncation_side": "up"}, "'left' or 'right'"),
        ({"enable_thinking": True}, "needs think_end_token"),
        ({"autogptq": True}, "transformers loads GPTQ weights by itself"),
        ({"prefix_sharing": "maybe"}, "on or off"),
        ({"rolling_stride": 0}, "between 1 and max_length"),
        ({"peft": "a", "delta": "b"}, "exclude each other"),
        ({"no_such_option": 3}, "no_such_option"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    from lm_eval.models.huggingface import HFLM

    with pytest.raises(EvalError, match=message):
        HFLM(pretrained=str(WEIGHTS), device="cpu", **options)


def test_a_missing_chat_template_is_said(make_lm: Make) -> None:
    with pytest.raises(ModelError, match="has no chat template"):
        make_lm().apply_chat_template([{"role": "user", "content": "Tom"}])
