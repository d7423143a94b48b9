"""Environments and samplers without processes or models, for tests of what joins them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from envhost.client import Result
from envhost.errors import EnvhostError
from rltrain.rollout import Completion, Request
from rltrain.sampler import Handover

Script = Callable[[int, str, Any], Result]


def reset_result(slot: int, prompt: str, **info: Any) -> Result:
    return Result(slot=slot, kind="reset", prompt_or_observation=prompt, info=info)


def step_result(
    slot: int, text: str, reward: float | None, *, is_over: bool = True, **info: Any
) -> Result:
    return Result(
        slot=slot,
        kind="step",
        prompt_or_observation=text,
        reward=reward,
        terminated=is_over,
        info=info,
    )


def failed(slot: int, kind: Any, error: EnvhostError) -> Result:
    return Result(slot=slot, kind=kind, info={}, error=error)


class FakePool:
    """A pool whose replies come from a script: (slot, kind, options or text) → Result.

    Slots in `silent` never answer; `calls` keeps what was submitted.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._ready: list[Result] = []
        self.silent: set[int] = set()
        self.calls: list[tuple[int, str, Any]] = []
        self.is_closed = False

    def submit_reset(self, slot: int, *, seed: int | None = None, **options: Any) -> None:
        self._submit(slot, "reset", {"seed": seed, **options})

    def submit(self, slot: int, text: str) -> None:
        self._submit(slot, "step", text)

    def poll(self, timeout: float | None = 0.0) -> list[Result]:
        ready, self._ready = self._ready, []
        return ready

    def close(self) -> None:
        self.is_closed = True

    def release(self, slot: int, kind: str, argument: Any) -> None:
        """Let a reply of a silent slot arrive after all."""
        self._ready.append(self._script(slot, kind, argument))

    def _submit(self, slot: int, kind: str, argument: Any) -> None:
        self.calls.append((slot, kind, argument))
        if slot not in self.silent:
            self._ready.append(self._script(slot, kind, argument))


class FakeSampler:
    """A sampler with hand-written answers: request → token ids; one request ends each advance."""

    def __init__(self, answer: Callable[[Request], Sequence[int]], *, stop_id: int = 2) -> None:
        self._answer = answer
        self._stop_id = stop_id
        self._queue: list[Request] = []
        self.requests: list[Request] = []

    @contextmanager
    def serving(self) -> Iterator[None]:
        yield

    @property
    def handover(self) -> Handover:
        return Handover(seconds=1.5, memory_bytes={"train_end": 7})

    def submit(self, request: Request) -> None:
        self._queue.append(request)
        self.requests.append(request)

    def can_advance(self, *, is_more_coming: bool) -> bool:
        return bool(self._queue)

    def advance(self) -> list[Completion]:
        request = self._queue.pop(0)
        ids = list(self._answer(request))[: request.max_tokens]
        return [
            Completion(
                key=request.key,
                token_ids=ids,
                behaviour_logprobs=[-0.5] * len(ids),
                finish="stop" if ids[-1] == self._stop_id else "length",
            )
        ]

    def abort(self) -> None:
        self._queue.clear()


class LetterTokenizer:
    """One token a character from 100 on, specials below; a template as Qwen's."""

    all_special_tokens = ("<s>", "<e>")
    chat_template = "qwen"

    def __call__(self, text: str, *, split_special_tokens: bool = False, **_: Any) -> Any:
        ids, rest = [], text
        while rest:
            for special, number in (("<s>", 1), ("<e>", 2)):
                if rest.startswith(special) and not split_special_tokens:
                    ids.append(number)
                    rest = rest[len(special) :]
                    break
            else:
                ids.append(100 + ord(rest[0]))
                rest = rest[1:]
        return {"input_ids": ids}

    def apply_chat_template(self, conversation: list[dict[str, str]], **_: Any) -> str:
        parts = [f"<s>{m['role'][0]}:{m['content']}<e>\n" for m in conversation]
        return "".join(parts) + "<s>a:"

    def decode(self, token_ids: Sequence[int], **_: Any) -> str:
        return "".join(chr(i - 100) for i in token_ids if i >= 100)


def letters(text: str) -> list[int]:
    return list(LetterTokenizer()(text)["input_ids"])
