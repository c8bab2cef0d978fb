"""`ServedLM`: models that are reached over HTTP."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lm_eval.api.instance import Completion, Failure, Instance
from lm_eval.api.model import move_spaces
from lm_eval.engine.progress import Progress
from lm_eval.errors import ModelError
from lm_eval.models.conventions import read_generation, task_of
from lm_eval.models.planned.jobs import GenerationJob, Prompt, Sampling, Window
from lm_eval.models.planned.model import Finished, FinishedJobs
from lm_eval.models.planned.score_plan import ScorePlan
from lm_eval.models.planned.tokenizers import TokenCoder
from lm_eval.models.planned.two_steps import TwoSteps
from lm_eval.models.served.base import ServedBase
from lm_eval.models.served.exchange import Exchange, FollowUp
from lm_eval.models.served.messages import JsonChatStr, read_messages
from lm_eval.models.served.text_prompts import end_of_text, says_too_long, too_long_remedy
from lm_eval.models.served.transport import is_local
from lm_eval.models.thinking import budget_settings, is_special, special_token_settings

logger = logging.getLogger(__name__)


class ServedLM(ServedBase):
    """Base class of models that are reached over HTTP: sends what is planned, and reads answers.

    The arguments and the class attributes that a subclass sets are those of `ServedBase`.
    """

    #: Whether the server has returned a thought apart from an answer, which ended in it.
    _thinks_apart = False

    # -- chats ------------------------------------------------------------------------------------

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Returns the messages as JSON for a chat API, else the prompt that the template makes.

        `add_generation_prompt` has no effect on the JSON; see `PlannedLM.apply_chat_template`.
        """
        if self.dialect_is_chat:
            return JsonChatStr(json.dumps(chat_history, ensure_ascii=False))
        return super().apply_chat_template(chat_history, add_generation_prompt)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        return "" if self.dialect_is_chat else super().chat_template(chat_template)

    # -- requests ---------------------------------------------------------------------------------

    @property
    def token_coder(self) -> TokenCoder | None:
        return self.served_tokenizer

    @property
    def gives_samples(self) -> bool:
        return self.dialect.accepts_samples

    @property
    def takes_tokens(self) -> bool:
        if self.tokenized_requests is False or self.dialect_is_chat:
            return False
        return self.dialect.accepts_tokens and self.served_tokenizer is not None

    def _score_windows(self, windows: Sequence[Window], finished: Finished, bar: Progress) -> None:
        dialect = self.dialect
        plan = ScorePlan(windows, dialect.abilities(self._batch_size))
        url = self._url(dialect.score_path or dialect.path)
        refused: list[Any] = []

        def exchange(job: Any) -> Exchange:
            return Exchange(
                url,
                lambda: dialect.job_payload(job, plan.windows),
                lambda reply: dialect.read_job(self._counted(reply), job, plan.windows),
                tag=job,
                adapt=dialect.adapt,
            )

        def take(batch: Sequence[tuple[Exchange, Any]]) -> None:
            results = []
            for one, found in batch:
                if isinstance(found, Failure) and not plan.is_single(one.tag):
                    refused.append(one.tag)  # one of its prompts was refused: send them one by one
                    continue
                results += plan.add(one.tag, self._with_remedy(found))
            finished(results)
            bar.update(len(results))

        self._exchange(map(exchange, plan.jobs()), take)
        while refused:
            singles = [single for job in refused for single in plan.split(job)]
            refused.clear()
            self._exchange(map(exchange, singles), take)

    def _with_remedy(self, found: Any) -> Any:
        """Returns `found` unless it is a `Failure` because a prompt was refused as too long.

        Then returns a `Failure` whose reason also says what to do about it.
        """
        if not isinstance(found, Failure) or not says_too_long(found.reason):
            return found
        remedy = too_long_remedy(self.dialect_is_chat, self.served_tokenizer is not None)
        return Failure(f"{found.reason} ({remedy})")

    def _why_not(self, window: Window) -> str:
        """Returns why this server cannot score a window; "" if it can."""
        if not self.dialect.accepts_tokens and window.text is None:
            return "the server accepts only text, and this text is longer than its context"
        is_first = window.start == 1 and window.tokens[0] == self._known_prefix
        if is_first and not self.dialect.scores_first_token:
            return self.certificate.no_first_token
        return ""

    def _require(self, request_type: str) -> None:
        reason = self.cannot_measure(request_type)
        if reason is not None:
            raise ModelError(f"{self.base_url} cannot measure log-likelihoods: {reason}.")

    def _generate_answers(
        self, jobs: Iterable[GenerationJob], finished: FinishedJobs, bar: Progress
    ) -> None:
        dialect, url, steps = self.dialect, self._url(self.dialect.path), self.two_steps
        refused: list[list[GenerationJob]] = []

        def request(batch: Sequence[GenerationJob]) -> FollowUp:
            given, prompts = batch[0].sampling, [job.prompt for job in batch]

            def payload() -> Any:
                sampling = replace(given, until=self._stops_to_send(given))
                return dialect.generate_payload(prompts, sampling)

            def read(reply: Any) -> Any:
                found = self._read_answers(reply, len(batch), given.samples)
                if self._stops_to_send(given) and self._stopped_in_thought(found):
                    self._thinks_apart = True  # no more stop strings are sent
                    return FollowUp(payload, read)
                return found

            return FollowUp(payload, read)

        def in_two_steps(job: GenerationJob, steps: TwoSteps) -> FollowUp:
            first = request([steps.first(job)])

            def read(reply: Any) -> Any:
                found = first.read(reply)[0][0]
                following = steps.second(job, found)
                if following is None:
                    return [[found]]
                second = request([following])
                return FollowUp(
                    second.payload, lambda reply: [[steps.join(found, second.read(reply)[0][0])]]
                )

            return FollowUp(first.payload, read)

        def exchange(batch: list[GenerationJob]) -> Exchange:
            made = request(batch) if steps is None else in_two_steps(batch[0], steps)
            return Exchange(url, made.payload, made.read, tag=batch, adapt=dialect.adapt)

        def take(results: Sequence[tuple[Exchange, Any]]) -> None:
            done: list[tuple[GenerationJob, Any]] = []
            for one, found in results:
                batch = one.tag
                if isinstance(found, Failure) and len(batch) > 1:
                    refused.append(batch)  # one of its prompts was refused: send them one by one
                    continue
                found = self._with_remedy(found)
                done += [
                    (job, found if isinstance(found, Failure) else found[number])
                    for number, job in enumerate(batch)
                ]
            finished(done)
            bar.update(sum(len(job.requests) for job, _ in done))

        self._exchange(map(exchange, self._batched(jobs)), take)
        while refused:
            singles = [[job] for batch in refused for job in batch]
            refused.clear()
            self._exchange(map(exchange, singles), take)

    def _stops_to_send(self, sampling: Sampling) -> list[str]:
        """Returns the stop strings that the server gets.

        None in chats with a model whose thoughts are returned apart: servers look for stop strings
        in thoughts, too.
        """
        if self.dialect_is_chat:
            seen = self._thinks_apart or self.certificate.reasoning is not None
            if seen or self.thinking_budget is not None:
                return []
        return super()._stops_to_send(sampling)

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        answers = super().generate_until(requests, disable_tqdm)
        self._warn_of_uncut(answers)
        return answers

    def _warn_of_uncut(self, answers: Sequence[Any]) -> None:
        """Logs a warning if the server of a chat was to cut thoughts and has not."""
        budget = self.thinking_budget
        if budget is None or not self.dialect_is_chat:
            return
        known = [one for one in answers if isinstance(one, Completion)]
        # Servers count a few tokens more, such as the marks.
        uncut = sum(self._thought_length(one) > 1.1 * budget + 16 for one in known)
        if uncut:
            logger.warning(
                "The thoughts of %d of %d answers are longer than thinking_budget=%d: the server "
                "(%s) has not cut them. vLLM cuts them if it runs with --reasoning-parser or "
                "--reasoning-config, SGLang if it runs with --enable-strict-thinking and "
                "--reasoning-parser.",
                uncut,
                len(known),
                budget,
                self.certificate.server,
            )

    def _thought_length(self, answer: Completion) -> int:
        """Returns how many tokens a thought has, as far as it is known, or else 0."""
        if answer.reasoning_tokens is not None:
            return answer.reasoning_tokens
        if answer.length_stopped and not answer:  # nothing but a thought
            return answer.tokens or 0
        coder = self.token_coder
        if coder is None or not answer.reasoning:
            return 0
        return len(coder.encode([answer.reasoning], False)[0])

    def _stopped_in_thought(self, found: Sequence[Sequence[Any]]) -> bool:
        """Returns whether any answer of a chat may have ended at a stop string in its thought."""
        return self.dialect_is_chat and any(
            isinstance(one, Completion)
            and bool(one.reasoning)
            and not one.strip()
            and one.finish_reason != "length"
            for answers in found
            for one in answers
        )

    def _generation_jobs(self, requests: Sequence[Instance]) -> Iterable[GenerationJob]:
        self._warn_if_greedy(requests)
        return super()._generation_jobs(requests)

    def _warn_if_greedy(self, requests: Sequence[Instance]) -> None:
        """Warns of tasks that ask for sampled answers, if the server does not sample."""
        if not self.certificate.may_be_greedy:
            return
        settings = {repr(request.args[1]): request.args[1] for request in requests}
        sampled = {
            key
            for key, given in settings.items()
            if read_generation(given, self._max_gen_toks).sampled
        }
        tasks = dict.fromkeys(task_of(r) for r in requests if repr(r.args[1]) in sampled)
        if tasks:
            logger.warning(
                "The server %s temperature and answers greedily. Tasks that ask for sampled "
                "answers: %s. Their answers are not sampled, and repeats of an answer are copies.",
                "ignores" if self.certificate.sampling == "no" else "perhaps ignores",
                ", ".join(tasks),
            )

    def _batched(self, jobs: Iterable[GenerationJob]) -> Iterator[list[GenerationJob]]:
        """Yields lists of jobs with equal settings, each at most as long as a request may be."""
        several = self.dialect.accepts_lists and self.two_steps is None
        size = self._batch_size if several else 1
        alike: dict[str, list[GenerationJob]] = {}
        for job in jobs:
            batch = alike.setdefault(key := repr(job.sampling) if size > 1 else "", [])
            batch.append(job)
            if len(batch) == size:
                yield alike.pop(key)
        yield from alike.values()

    @property
    def _cuts_text(self) -> bool:
        """Whether prompts are sent as text and can be cut.

        That needs a tokenizer which is not known to be another than the server's, and a context
        length: a prompt is not cut to a length that is only assumed.
        """
        if self.dialect_is_chat or self.takes_tokens or self.served_tokenizer is None:
            return False
        is_known = self._max_length is not None or self.certificate.context_length is not None
        return is_known and self.certificate.tokenizer in ("agrees", "unknown")

    def _prompts(self, requests: Sequence[Instance]) -> list[Prompt]:
        if not self._cuts_text:
            return super()._prompts(requests)
        coder, found = self._need_tokenizer(), []
        texts = [str(request.args[0]) for request in requests]
        for request, text, tokens in zip(requests, texts, self._encode(texts), strict=True):
            if len(tokens) > (room := self._room(request)):
                self.run_context.usage.truncated[task_of(request)] += 1
                text = end_of_text(text, tokens, room, coder, self._encode)
            found.append(Prompt(text))
        return found

    def _window(
        self, arguments: Any, context: list[int], continuation: list[int]
    ) -> tuple[Window, bool]:
        window, cut = super()._window(arguments, context, continuation)
        if not cut or arguments is None or self.dialect.accepts_tokens:
            return window, cut
        whole, text = [*context, *continuation], "".join(arguments)
        if not self._cuts_text:  # the server decides whether it is too long
            return Window(whole, len(context), text, len(arguments[0])), False
        text = end_of_text(text, whole, self.max_length, self._need_tokenizer(), self._encode)
        rest = move_spaces(*arguments)[1]
        if len(text) <= len(rest):
            return window, cut  # the continuation alone does not fit
        before, whole = self._encode([text[: -len(rest)], text])
        return Window(whole, len(before), text, len(text) - len(arguments[1])), cut

    def _prompt(self, request: Instance, tokens: list[int] | None) -> Prompt:
        text = str(request.args[0])
        if not self.dialect_is_chat:
            return Prompt(text, tokens)
        return Prompt(text, messages=self._messages(text, request))

    def _messages(self, text: str, request: Instance) -> list[dict[str, Any]]:
        """Returns the messages of a request; `text` is its prompt."""
        return read_messages(text)

    def _stops(self, until: Sequence[str]) -> list[str]:
        return list(until) if self.dialect_is_chat else super()._stops(until)

    # -- sending ----------------------------------------------------------------------------------

    def _url(self, path: str) -> str:
        """Returns the address of requests to a path of the API."""
        return self.endpoint.url(path)

    def _exchange(
        self,
        exchanges: Iterable[Exchange],
        take: Callable[[Sequence[tuple[Exchange, Any]]], None],
    ) -> None:
        """Sends requests and passes pairs of request and result to `take` as they arrive.

        A result is what the request's `read` returned, or a `Failure`. After Ctrl-C, no more are
        sent; the answers to those in flight are still taken, then `KeyboardInterrupt` is raised.
        """
        with self.make_client().stream(exchanges) as stream:
            try:
                for batch in stream:
                    take(batch)
            except KeyboardInterrupt:
                logger.warning(
                    "Interrupted: waiting a few seconds for the answers to %d requests. Press "
                    "Ctrl-C again to stop at once.",
                    stream.in_flight,
                )
                for batch in stream.drain():
                    take(batch)
                raise

    @property
    def two_steps(self) -> TwoSteps | None:
        return None if self.dialect_is_chat else super().two_steps

    def _read_sampling(self, settings: Mapping[str, Any]) -> Sampling:
        sampling = super()._read_sampling(settings)
        server, own = self.certificate.server, dict[str, Any]()
        if self.thinking_budget is not None and self.dialect_is_chat:
            own = budget_settings(server, self.thinking_budget)
        if self.think_end_token and is_special(self.think_end_token, self.token_coder):
            own |= special_token_settings(server)
        return replace(sampling, others={**own, **sampling.others}) if own else sampling

    def _read_answers(self, reply: Any, prompts: int, samples: int) -> list[list[Any]]:
        """Returns for each prompt of a request the list of its answers.

        If the reply contains a single answer, it carries the number of its tokens.
        """
        found = self.dialect.read_generated(self._counted(reply), prompts, samples)
        if prompts * samples > 1 or not isinstance(found[0][0], Completion):
            return found
        counted, answer = self.dialect.usage(reply), found[0][0]
        if not counted.answer:
            return found
        thought = counted.reasoning if answer.reasoning_tokens is None else answer.reasoning_tokens
        return [[answer.changed(answer, tokens=counted.answer, reasoning_tokens=thought or None)]]

    def _counted(self, reply: Any) -> Any:
        """Adds the tokens that a reply reports to `run_context.usage`, and returns the reply."""
        counted = self.dialect.usage(reply)
        usage = self.run_context.usage
        usage.count_prompt(counted.prompt, counted.prompt - counted.cached)
        usage.count_answer(counted.answer)
        usage.count_generated(counted.answer)
        return reply

    def usage(self) -> dict[str, Any]:
        """Returns token counts by name, and `cost` if `price_in` or `price_out` was given."""
        totals = super().usage()
        price_in, price_out = self._prices
        if price_in is not None or price_out is not None:
            cost = totals["tokens_in"] * (price_in or 0) + totals["tokens_out"] * (price_out or 0)
            totals["cost"] = round(cost / 1e6, 6)
        return totals

    # -- identity ---------------------------------------------------------------------------------

    def answer_settings(self) -> dict[str, Any]:
        return {
            **super().answer_settings(),
            "tokenizer_backend": self._backend,
            "tokenizer_settings": self._tokenizer_settings,
            "tokenized_requests": self.tokenized_requests,
            "max_length": self._max_length,
            "max_images": self.max_images,
        }

    def identity(self) -> dict[str, Any]:
        """Returns what tells this model from others, for stored answers.

        That is its name, what the server reports about the weights, and a hash of its answers to
        known prompts. The address is part of it unless the server reports a revision or file, or
        the user vouches for the model with `identity=NAME`. So is the length that prompts are cut
        to, which the server may report.
        """
        own: dict[str, Any] = {"model": self.model, "add_bos_token": self.add_bos_token}
        if self._identity is not None:
            return {**own, "identity": self._identity}
        certificate = self.certificate
        if not self.dialect_is_chat:
            own["max_length"] = self.max_length
        reported = dict(certificate.reported)
        if not {"revision", "file"} & set(reported):
            own["endpoint"] = self.endpoint.root
        # The texts that a hosted model generates differ from one time to the next.
        values = certificate.values
        if "score" in values or (values and is_local(self.base_url)):
            own["answers"] = certificate.fingerprint
        return {**own, "reported": reported, "dialect": certificate.dialect}
