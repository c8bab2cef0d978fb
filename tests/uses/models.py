"""Projects with model classes of their own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from unittest import mock

from .support import (
    HF,
    checkpoint,
    choice,
    generation,
    likelihood,
    lm_class,
    manager,
    scores,
    tokenizer,
    use,
    words,
    write,
)


@use("a diffusion language model that registers its class and calls the command line")
def research_model_calls_the_command_line(folder: Path) -> Any:
    from lm_eval.__main__ import cli_evaluate
    from lm_eval.api.registry import register_model

    @register_model("diffusion_dist")
    class Diffusion(lm_class()):
        def __init__(
            self, model_path: str = "", mc_num: int = 128, batch_size: int = 32, **kwargs: Any
        ) -> None:
            super().__init__()
            self.model_path, self.mc_num, self.batch_size = model_path, mc_num, int(batch_size)
            arguments.append([model_path, mc_num, self.batch_size])

    arguments: list[Any] = []
    tasks = write(folder, choice(folder))
    words = ["eval.py", "--model", "diffusion_dist", "--tasks", "colours"]
    words += ["--model_args", "model_path=somewhere,mc_num=3", "--batch_size", "4"]
    words += ["--include_path", str(tasks), "--output_path", str(folder / "out")]
    with mock.patch.object(sys, "argv", words):
        cli_evaluate()
    return [arguments, len(list((folder / "out").rglob("results_*.json")))]


@use("an attention library that derives from HFLM and calls the command line", needs=HF)
def attention_library_derives_from_hflm(folder: Path) -> Any:
    from lm_eval.__main__ import cli_evaluate
    from lm_eval.api.registry import register_model
    from lm_eval.models.huggingface import HFLM

    @register_model("linear_attention")
    class Wrapper(HFLM):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            made.append(type(self.model).__name__)

    made: list[str] = []
    tasks, path = write(folder, choice(folder)), checkpoint(folder)
    words = ["harness.py", "--model", "linear_attention", "--tasks", "colours", "--limit", "2"]
    words += ["--model_args", f"pretrained={path},dtype=float32", "--device", "cpu"]
    words += ["--include_path", str(tasks), "--output_path", str(folder / "out")]
    with mock.patch.object(sys, "argv", words):
        cli_evaluate()
    return [made, len(list((folder / "out").rglob("results_*.json")))]


@use("an array framework whose class passes its tokenizer's chat template on", needs=HF)
def array_framework_applies_a_chat_template(folder: Path) -> Any:
    import lm_eval
    from lm_eval.api.registry import register_model

    class Tokenizer:
        def apply_chat_template(self, history: Any, add_generation_prompt: bool = True) -> str:
            text = "".join(f"<{m['role']}>{m['content']}" for m in history)
            return text + ("<assistant>" if add_generation_prompt else "")

    @register_model("arrays")
    class Arrays(lm_class()):
        tokenizer_name = "a/tokenizer"

        def __init__(self, tokenizer: Any, use_chat_template: bool) -> None:
            super().__init__()
            self._tokenizer, self.use_chat_template = tokenizer, use_chat_template
            self.apply_chat_template = tokenizer.apply_chat_template

        def chat_template(self, chat_template: Any = False) -> str:
            return "a template"

    results = lm_eval.simple_evaluate(
        model=Arrays(Tokenizer(), True),
        tasks=["written"],
        fewshot_as_multiturn=True,
        apply_chat_template=True,
        num_fewshot=1,
        limit=2,
        random_seed=3,
        numpy_random_seed=3,
        torch_random_seed=3,
        fewshot_random_seed=3,
        task_manager=manager(folder, generation(folder, fewshot_split="train")),
    )
    prompts = [sample["arguments"][0][0] for sample in results["samples"]["written"]]
    return [prompts, scores(results)]


@use("an optimization toolkit with a TemplateLM that batches through Collator", needs=HF)
def toolkit_batches_through_collator(folder: Path) -> Any:
    from lm_eval import simple_evaluate
    from lm_eval.api.model import TemplateLM
    from lm_eval.models.utils import Collator

    class Engine(TemplateLM):
        eot_token_id = 0

        def tok_encode(self, string: str, add_special_tokens: Any = None, **kwargs: Any) -> Any:
            return tokenizer().encode(string, add_special_tokens=False)

        def _loglikelihood_tokens(self, requests: Any, **kwargs: Any) -> Any:
            ordered = Collator(requests, sort_fn=lambda r: -len(r[1]) - len(r[2]), group_by=None)
            found = []
            for batch in ordered.get_batched(n=4):
                batches.append(len(batch))
                found += [(-float(sum(context + rest) % 89), False) for _, context, rest in batch]
            return ordered.get_original(found)

        def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> Any:
            raise NotImplementedError

        def generate_until(self, requests: Any, disable_tqdm: bool = False) -> Any:
            raise NotImplementedError

    batches: list[int] = []
    engine = Engine()
    results = simple_evaluate(
        model=engine, tasks=["colours"], task_manager=manager(folder, choice(folder))
    )
    return [batches, scores(results)]


@use("a project that asks a model with requests it makes itself")
def project_makes_its_own_requests(folder: Path) -> Any:
    from lm_eval.api.instance import Instance
    from lm_eval.api.registry import get_model

    lm = get_model("dummy").create_from_arg_obj({}, {"batch_size": 4, "device": None})
    prompts = ["a", "b", "c"]
    requests = [
        Instance("generate_until", {"prompt": text}, (text, {"until": [], "do_sample": True}), i)
        for i, text in enumerate(prompts)
    ]
    return [lm.generate_until(requests), lm.rank, lm.world_size, requests[1].args[0]]


@use("an evaluation platform that wraps the model with an answer cache")
def platform_wraps_the_model_with_a_cache(folder: Path) -> Any:
    import lm_eval
    from lm_eval.api.model import CachingLM
    from lm_eval.tasks import get_task_dict

    asked: list[int] = []

    class Counting(lm_class()):
        def loglikelihood(self, requests: Any) -> Any:
            asked.append(len(requests))
            return [(likelihood(*request.args), False) for request in requests]

    tasks = get_task_dict(["colours"], manager(folder, choice(folder)))
    found = []
    for _ in range(2):
        lm = CachingLM(Counting(), str(folder / "cache" / "answers_rank0.db"))
        found.append(scores(lm_eval.evaluate(lm, tasks, bootstrap_iters=0)))
    return [asked, found, lm.rank]


@use("a serving project whose generation sorts requests and normalizes their settings")
def serving_project_normalizes_settings(folder: Path) -> Any:
    from lm_eval import simple_evaluate
    from lm_eval.models.utils import (
        handle_stop_sequences,
        maybe_truncate,
        normalize_gen_kwargs,
        postprocess_generated_text,
    )

    settings: list[Any] = []

    class Served(lm_class()):
        def generate_until(self, requests: Any) -> Any:
            found = []
            for request in requests:
                context, given = request.args
                read = normalize_gen_kwargs(given, default_max_gen_toks=16)
                stops = handle_stop_sequences(read.pop("until"), eos="</s>")
                kept, room = maybe_truncate(list(context), read["max_gen_toks"], 24, verbose=False)
                settings.append([sorted(read.items()), stops, len(kept), room])
                text = f"thinking</think> {words(context)}\nmore"
                found.append(postprocess_generated_text(text, stops, "</think>"))
            return found

    tasks = manager(folder, generation(folder))
    results = simple_evaluate(Served(), tasks=["written"], task_manager=tasks)
    return [settings[0], scores(results)]


@use("a project that registers two classes under one name by mistake")
def two_classes_under_one_name(folder: Path) -> Any:
    from lm_eval.api.registry import register_model

    register_model("taken")(type("First", (lm_class(),), {}))
    register_model("taken")(type("Second", (lm_class(),), {}))
    return "registered"


@use("a project that registers its class as one that exists")
def class_under_the_name_of_a_built_in_one(folder: Path) -> Any:
    from lm_eval.api.registry import register_model

    register_model("dummy")(type("Mine", (lm_class(),), {}))
    return "registered"


@use("a platform that tries another loader if the model's folder is missing", needs=HF)
def missing_folder_is_an_os_error(folder: Path) -> Any:
    import lm_eval

    try:
        lm_eval.simple_evaluate(
            model="hf",
            model_args={"pretrained": str(folder / "nowhere" / "model")},
            tasks=["colours"],
            device="cpu",
            task_manager=manager(folder, choice(folder)),
        )
    except OSError:
        return "OSError"
    return "loaded"


@use("a platform that reports what a model's constructor raised")
def errors_of_a_constructor_keep_their_type(folder: Path) -> Any:
    import lm_eval
    from lm_eval.api.registry import register_model

    @register_model("refusing")
    class Refusing(lm_class()):
        def __init__(self, kind: str = "ValueError", **kwargs: Any) -> None:
            raise kinds[kind](kind)

    kinds = {"ValueError": ValueError, "TypeError": TypeError, "KeyError": KeyError}
    found = []
    for kind, expected in kinds.items():
        try:
            lm_eval.simple_evaluate(
                model="refusing",
                model_args={"kind": kind},
                tasks=["colours"],
                task_manager=manager(folder, choice(folder)),
            )
        except expected:
            found.append(kind)
    return found


@use("a platform that gives a model an argument that it does not take")
def unknown_model_argument_is_a_type_error(folder: Path) -> Any:
    import lm_eval
    from lm_eval.api.registry import register_model

    @register_model("strict")
    class Strict(lm_class()):
        def __init__(self, batch_size: int = 1, max_batch_size: Any = None, device: Any = None):
            super().__init__()

    try:
        lm_eval.simple_evaluate(
            model="strict",
            model_args="pretained=x",
            tasks=["colours"],
            task_manager=manager(folder, choice(folder)),
        )
    except TypeError:
        return "TypeError"
    return "made"


@use("a model class for an API that retries when there are too many requests")
def api_class_retries(folder: Path) -> Any:
    from lm_eval.models.utils import retry_on_specific_exceptions

    class RateLimitError(Exception):
        pass

    waits: list[float] = []
    errors = [RateLimitError(), RateLimitError()]

    @retry_on_specific_exceptions(
        [RateLimitError],
        max_retries=4,
        backoff_time=0.001,
        on_exception_callback=lambda error, wait: waits.append(wait),
    )
    def complete(prompt: str, **settings: Any) -> str:
        if prompt == "bad":
            raise KeyError(prompt)
        if errors:
            raise errors.pop()
        return f"{prompt} {settings}"

    found = [complete("a", n=1), waits, complete.__name__]
    try:
        complete("bad")
    except KeyError:
        found.append("KeyError")
    return found


@use(
    "a model class for an API that is asked in vain",
    difference="published: None after the last attempt; here: the exception",
)
def api_class_retries_in_vain(folder: Path) -> Any:
    from lm_eval.models.utils import retry_on_specific_exceptions

    @retry_on_specific_exceptions([TimeoutError], max_retries=2, backoff_time=0.001)
    def complete() -> str:
        raise TimeoutError

    return complete()
