"""Text to tokens and back: the prompt once from the chat template, then a suffix for each turn.

Sampled tokens are never turned into text and back into tokens: the next prompt is the previous
tokens, the sampled ones, and the suffix. Text from environments stays text: a `<|im_end|>` in an
observation is spelled out in ordinary tokens and ends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from .errors import SetupError

__all__ = ["Chat", "Tokenizer"]

_SLOT = "\N{OBJECT REPLACEMENT CHARACTER}{}\N{OBJECT REPLACEMENT CHARACTER}"
"""What stands in a rendered template where a text will be put."""


class Tokenizer(Protocol):
    """What is needed of a tokenizer of Transformers."""

    chat_template: Any
    all_special_tokens: list[str]

    def __call__(self, text: str, **options: Any) -> Mapping[str, Any]:
        """Tokenise a text."""

    def apply_chat_template(self, conversation: list[dict[str, str]], **options: Any) -> Any:
        """Render a conversation."""

    def decode(self, token_ids: Sequence[int], **options: Any) -> str:
        """Turn tokens into text."""


class Chat:
    """A tokenizer with its chat template.

    Args:
        tokenizer: The model's own.
        options: What the template takes beside the messages (`enable_thinking`, …).

    Raises:
        SetupError: The tokenizer has no chat template, or the template fails.
    """

    def __init__(self, tokenizer: Tokenizer, options: Mapping[str, Any] | None = None) -> None:
        if not tokenizer.chat_template:
            raise SetupError("the tokenizer has no chat template: choose an instruct model")
        self._tokenizer = tokenizer
        self._options = dict(options or {})
        self._suffix = self._suffix_template()

    def prompt_ids(self, prompt: str, *, system: str | None = None) -> list[int]:
        """Return the tokens of an episode's first prompt, up to where the model answers."""
        texts = ([] if not system else [("system", system)]) + [("user", prompt)]
        messages = [
            {"role": role, "content": _SLOT.format(index)} for index, (role, _) in enumerate(texts)
        ]
        return self._encode(self._render(messages), [text for _, text in texts])

    def suffix_ids(self, last_id: int, observation: str) -> list[int]:
        """Return the tokens between an answer and the next one: its end, the observation, the cue.

        Args:
            last_id: The answer's last token. An answer that sampled its own end of turn does not
                get a second one; one cut by length gets the one that it lacks.
            observation: What the environment said.
        """
        ids = self._encode(self._suffix, [observation])
        return ids[1:] if ids[:1] == [last_id] else ids

    def text(self, token_ids: Sequence[int]) -> str:
        """Return an answer as the environment is to see it, without special tokens."""
        return self._tokenizer.decode(token_ids, skip_special_tokens=True)

    def _render(self, messages: list[dict[str, str]]) -> str:
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    messages, tokenize=False, add_generation_prompt=True, **self._options
                )
            )
        except Exception as error:  # templates are programs of the model's author
            raise SetupError(
                f"the chat template failed on roles {[message['role'] for message in messages]}: "
                f"{error}"
            ) from error

    def _suffix_template(self) -> str:
        """Return what the template puts after an answer, with a slot for the observation."""
        answer = "\N{OBJECT REPLACEMENT CHARACTER}answer\N{OBJECT REPLACEMENT CHARACTER}"
        rendered = self._render(
            [
                {"role": "user", "content": "?"},
                {"role": "assistant", "content": answer},
                {"role": "user", "content": _SLOT.format(0)},
            ]
        )
        _, found, suffix = rendered.partition(answer)
        if not found:
            raise SetupError("the chat template drops earlier answers: it cannot play turns")
        return suffix

    def _encode(self, rendered: str, texts: Sequence[str]) -> list[int]:
        """Return the tokens of a rendered template with the texts put into its slots."""
        literals: list[str] = []  # what the template puts before each text
        for index in range(len(texts)):
            before, _, rendered = rendered.partition(_SLOT.format(index))
            literals.append(before)
        if not any(
            special in text for text in texts for special in self._tokenizer.all_special_tokens
        ):
            filled = "".join(before + text for before, text in zip(literals, texts, strict=True))
            return self._tokens(filled + rendered)
        ids: list[int] = []
        for before, text in zip(literals, texts, strict=True):
            ids += [*self._tokens(before), *self._tokens(text, split_special_tokens=True)]
        return [*ids, *self._tokens(rendered)]

    def _tokens(self, text: str, **options: Any) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False, **options)["input_ids"])
