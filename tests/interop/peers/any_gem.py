"""Any environment of GEM by the id that a reset names, for a server; or a game in this process.

Usage as a program: any_gem.py ID OPTIONS SEEDS ACTIONS, the last three in JSON; prints for each
seed the list of what reset and the steps returned.
"""

import json
import sys

import gem
import gem.envs


class AnyGem:
    """Play what each reset asks for."""

    def reset(self, env_id, seed=None):
        """Make an environment and begin its episode."""
        self._environment = gem.make(env_id)
        return self._environment.reset(seed=seed)

    def step(self, action):
        """Apply an action."""
        return self._environment.step(action)


def shown(observation, info):
    """Return an observation as GEM's wrappers show it: a line end, and the info's suffix."""
    return observation + "\n" * (not observation.endswith("\n")) + info["suffix"]


def played(environment, seed, actions):
    """Return an episode's observations, rewards and ends."""
    first, info = environment.reset(seed=seed)
    seen = [shown(first, info)]
    for action in actions:
        observation, reward, terminated, truncated, info = environment.step(action)
        seen.append([shown(observation, info), float(reward), bool(terminated), bool(truncated)])
        if terminated or truncated:
            break
    return seen


def main():
    """Play one environment over many seeds, one after the other."""
    env_id, *given = sys.argv[1:]
    options, seeds, actions = map(json.loads, given)
    environment = gem.make(env_id, **options)
    print(json.dumps([played(environment, seed, actions) for seed in seeds]))


if __name__ == "__main__":
    main()
