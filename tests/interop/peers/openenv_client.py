"""Drive a server with OpenEnv's GenericEnvClient; runs in a virtual environment of its own.

Usage: openenv_client.py SCENARIO URL. Prints what the client saw as one JSON object.
"""

import asyncio
import json
import sys
from importlib.metadata import PackageNotFoundError, version

from openenv.core.generic_client import GenericEnvClient


def _plain(result):
    return {
        "observation": result.observation,
        "reward": result.reward,
        "done": result.done,
        "metadata": getattr(result, "metadata", None),
    }


async def episode(url):
    """Reset, state before and after, steps to the end, an action too many, reset again, close."""
    client = GenericEnvClient(base_url=url)
    await client.connect()
    seen = {"state_first": await client.state()}
    seen["reset"] = _plain(await client.reset(seed=7, unknown_option=[1, 2]))
    seen["step"] = _plain(await client.step({"message": 'hällo\n"x"'}))
    seen["state"] = await client.state()
    seen["end"] = _plain(await client.step({"message": "end"}))
    seen["errors"] = [await _error(client.step({"message": "one more"}))]
    seen["again"] = _plain(await client.reset(seed=8))
    seen["errors"].append(await _error(client.step({"massage": "typo"})))
    seen["cut"] = _plain(await client.step({"message": "cut"}))
    await client.reset()
    seen["errors"].append(await _error(client.step({"message": "raise"})))
    seen["alive"] = _plain(await client.reset(seed=9))
    await client.close()
    return seen


async def solve(url, answers):
    """Answer each of several seeds' problems with the given texts."""
    seen = []
    for answer in answers:
        client = GenericEnvClient(base_url=url)
        first = _plain(await client.reset(seed=3))
        seen.append([first, _plain(await client.step({"message": answer}))])
        await client.close()
    return seen


async def refused(url):
    """Hold the only slot, then come again and again; return each refusal's text."""
    holder = GenericEnvClient(base_url=url)
    await holder.reset()
    seen = [await _error(GenericEnvClient(base_url=url).reset()) for _ in range(20)]
    await holder.close()
    free = GenericEnvClient(base_url=url)
    after = _plain(await free.reset(seed=1))
    await free.close()
    return {"refusals": seen, "after": after}


async def abort(url):
    """Time out in the middle of a step and drop the socket without a word."""
    client = GenericEnvClient(base_url=url, message_timeout_s=1.0)
    await client.reset()
    error = await _error(client.step({"message": "wait"}))
    if client._ws is not None:  # 0.10 has dropped it by itself
        await client._ws.close()
    return error


async def _error(call):
    try:
        await call
    except Exception as error:  # noqa: BLE001 - whatever the client raises is what we look at
        return f"{type(error).__name__}: {error}"
    return "no error"


def _version():
    for name in ("openenv", "openenv-core"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "unknown"


async def main():
    """Run the scenario that the command line names."""
    scenario, url, *rest = sys.argv[1:]
    call = {"episode": episode, "solve": solve, "refused": refused, "abort": abort}[scenario]
    seen = await call(url, *map(json.loads, rest))
    print(json.dumps({"version": _version(), "seen": seen}))


if __name__ == "__main__":
    asyncio.run(main())
