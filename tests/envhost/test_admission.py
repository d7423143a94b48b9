"""Slots: bounded, first come first served, none lost."""

from __future__ import annotations

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from envhost.admission import Slots


async def test_a_free_slot_is_taken_without_waiting() -> None:
    """Also with a waiting time of 0 s."""
    slots = Slots(2)

    assert await slots.acquire(0.0)
    assert await slots.acquire(0.0)
    assert slots.taken == 2
    assert not await slots.acquire(0.0)
    slots.release()
    assert slots.taken == 1


async def test_the_wait_is_bounded(autojump_clock: MockClock) -> None:
    """False when no slot came free in time."""
    slots = Slots(1)
    assert await slots.acquire(5.0)
    started = trio.current_time()

    assert not await slots.acquire(5.0)

    assert trio.current_time() - started == 5.0
    assert slots.taken == 1


async def test_the_first_to_come_is_the_first_to_get(autojump_clock: MockClock) -> None:
    """A newcomer never overtakes the queue, and who gave up is skipped."""
    slots = Slots(1)
    await slots.acquire(0.0)
    order: list[int] = []

    async def come(number: int, wait_seconds: float) -> None:
        if await slots.acquire(wait_seconds):
            order.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(come, number, 1.0 if number == 1 else 100.0)
            await wait_all_tasks_blocked()
        await trio.sleep(2.0)
        for _ in range(4):
            slots.release()
            assert not await slots.acquire(0.0)
            await wait_all_tasks_blocked()

    assert order == [0, 2, 3, 4]
    slots.release()
    assert slots.taken == 0


async def test_one_who_is_cancelled_costs_no_slot() -> None:
    """In the queue, or in the moment of getting one."""
    slots = Slots(1)
    await slots.acquire(0.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slots.acquire, 100.0)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    slots.release()

    assert slots.taken == 0
