"""Generation with the trained module itself, through Transformers: no second copy, no sync.

Requests are worked in waves: all that wait become one batch, which runs until its last row ends.
Rows that have ended leave the batch. Each row's random numbers come from its request's seed alone,
so what is sampled does not depend on arrival times or on what shares the wave.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ..policy import Policy
from ..rollout import Completion, Request, Sampling
from .protocol import Handover

__all__ = ["WAVE_ROWS", "TransformersSampler", "truncate"]

WAVE_ROWS = 512
"""Rows of a batch at most."""


class TransformersSampler:
    """A `Sampler` over the policy that is trained.

    Args:
        policy: The policy; sampled in evaluation mode, so LoRA dropout is off.
        wave_rows: Rows of a batch at most.
    """

    def __init__(self, policy: Policy, *, wave_rows: int = WAVE_ROWS) -> None:
        self._policy = policy
        self._wave_rows = wave_rows
        self._queue: list[Request] = []
        self._wave: _Wave | None = None

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Put the model into evaluation mode until the context ends."""
        with self._policy.generating():
            try:
                yield
            finally:
                self.abort()

    @property
    def handover(self) -> Handover:
        """Nothing: sampler and trainer are one module."""
        return Handover()

    def submit(self, request: Request) -> None:
        """Take a request for the next wave."""
        self._queue.append(request)

    def can_advance(self, *, is_more_coming: bool) -> bool:
        """Whether a wave runs, or one may start: it waits for what is coming."""
        return self._wave is not None or (bool(self._queue) and not is_more_coming)

    def advance(self) -> list[Completion]:
        """Sample one token for every row of the wave; return the rows that ended."""
        if self._wave is None:
            self._queue.sort(key=lambda request: request.key)
            batch, self._queue = self._queue[: self._wave_rows], self._queue[self._wave_rows :]
            self._wave = _Wave(self._policy, batch)
        ended = self._wave.advance()
        if not self._wave.rows:
            self._wave = None
        return ended

    def abort(self) -> None:
        """Forget the wave and the queue."""
        self._queue.clear()
        self._wave = None


class _Row:
    """One request and what it has sampled so far."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.token_ids: list[int] = []
        self.logprobs: list[float] = []
        generator = torch.Generator().manual_seed(request.seed)
        self.uniforms = torch.rand(request.max_tokens, generator=generator, dtype=torch.float64)

    def completion(self, *, is_stopped: bool) -> Completion:
        return Completion(
            key=self.request.key,
            token_ids=self.token_ids,
            behaviour_logprobs=self.logprobs,
            finish="stop" if is_stopped else "length",
        )


class _Wave:
    """A batch of rows of one sampling setting, left-padded, with its key-value cache."""

    def __init__(self, policy: Policy, requests: Sequence[Request]) -> None:
        self._policy = policy
        self.rows = [_Row(request) for request in requests]
        self._sampling = requests[0].sampling
        assert all(request.sampling == self._sampling for request in requests)
        prompts = list(dict.fromkeys(tuple(request.prompt_ids) for request in requests))
        places = {prompt: index for index, prompt in enumerate(prompts)}
        owner = torch.tensor([places[tuple(r.prompt_ids)] for r in requests], device=policy.device)
        self._prefill(prompts, owner)

    def _prefill(self, prompts: Sequence[tuple[int, ...]], owner: Tensor) -> None:
        """Run each distinct prompt once, then give every row its prompt's cache."""
        device, longest = self._policy.device, max(len(prompt) for prompt in prompts)
        pads = [longest - len(prompt) for prompt in prompts]
        ids = torch.tensor(
            [[self._policy.pad_id] * pad + list(p) for pad, p in zip(pads, prompts, strict=True)],
            device=device,
        )  # [prompts, longest]
        mask = torch.arange(longest, device=device) >= torch.tensor(pads, device=device)[:, None]
        positions = (mask.long().cumsum(-1) - 1).clamp(min=0)  # [prompts, longest]
        output = self._policy.forward(
            input_ids=ids,
            attention_mask=mask.long(),
            position_ids=positions,
            use_cache=True,
            logits_to_keep=1,
        )
        self._cache = output.past_key_values
        self._cache.batch_select_indices(owner)
        self._mask = mask.long()[owner]  # [rows, longest]
        self._positions = positions[owner, -1:] + 1  # [rows, 1]
        self._logits: Tensor = output.logits[owner, -1]  # [rows, vocabulary]

    def advance(self) -> list[Completion]:
        """Draw a token for every row, and run the model on those that go on."""
        step = len(self.rows[0].token_ids)
        uniforms = torch.stack([row.uniforms[step] for row in self.rows])  # [rows]
        tokens, logprobs = _draw(self._logits, self._sampling, uniforms.to(self._logits.device))
        ended: list[Completion] = []
        going: list[int] = []
        for index, (row, token, logprob) in enumerate(
            zip(self.rows, tokens.tolist(), logprobs.tolist(), strict=True)
        ):
            row.token_ids.append(token)
            row.logprobs.append(logprob)
            is_stopped = token in self._policy.stop_ids
            if is_stopped or len(row.token_ids) == row.request.max_tokens:
                ended.append(row.completion(is_stopped=is_stopped))
            else:
                going.append(index)
        self._run(going, tokens)
        return ended

    def _run(self, going: list[int], tokens: Tensor) -> None:
        """Drop the rows that ended and make the others' next logits."""
        if len(going) < len(self.rows):
            self.rows = [self.rows[index] for index in going]
            if not going:
                return
            kept = torch.tensor(going, device=tokens.device)  # [rows]
            self._cache.batch_select_indices(kept)
            self._mask, self._positions = self._mask[kept], self._positions[kept]
            tokens = tokens[kept]
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(going), 1)], dim=1)
        self._logits = self._policy.forward(
            input_ids=tokens[:, None],
            attention_mask=self._mask,
            position_ids=self._positions,
            past_key_values=self._cache,
            use_cache=True,
        ).logits[:, -1]  # [rows, vocabulary]
        self._positions = self._positions + 1


def _draw(logits: Tensor, sampling: Sampling, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Return a token and its logprob for each row, by inverting the distribution function."""
    logits = logits.float()  # [rows, vocabulary]
    if sampling.temperature == 0:
        logprobs = logits.log_softmax(dim=-1)  # [rows, vocabulary]
        tokens = logits.argmax(dim=-1)  # [rows]
    else:
        logits = truncate(logits / sampling.temperature, sampling)
        logprobs = logits.log_softmax(dim=-1)  # [rows, vocabulary]
        # In float64: at a vocabulary of 152,000 an fp32 sum is off by more than rare tokens weigh.
        mass = logprobs.double().exp().cumsum(dim=-1)  # [rows, vocabulary]
        drawn = uniforms[:, None] * mass[:, -1:]  # [rows, 1]
        tokens = torch.searchsorted(mass, drawn, right=True)[:, 0]  # [rows]
    return tokens, logprobs.gather(-1, tokens[:, None])[:, 0]


def truncate(logits: Tensor, sampling: Sampling) -> Tensor:
    """Return logits with −inf for tokens that top_k, top_p or min_p leave out, [rows, vocabulary].

    The most probable token always stays. The logits are taken at the sampling temperature.
    """
    if 0 < sampling.top_k < logits.shape[-1]:
        least = logits.topk(sampling.top_k, dim=-1).values[:, -1:]  # [rows, 1]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if sampling.min_p > 0:
        probabilities = logits.softmax(dim=-1)  # [rows, vocabulary]
        least = probabilities.amax(dim=-1, keepdim=True) * sampling.min_p  # [rows, 1]
        logits = logits.masked_fill(probabilities < least, -torch.inf)
    if sampling.top_p < 1:
        ordered, order = logits.softmax(dim=-1).sort(dim=-1, descending=True)
        before = ordered.cumsum(dim=-1) - ordered  # [rows, vocabulary]: mass of likelier tokens
        out = torch.zeros_like(before, dtype=torch.bool).scatter(
            -1, order, before >= sampling.top_p
        )  # [rows, vocabulary]
        logits = logits.masked_fill(out, -torch.inf)
    return logits
