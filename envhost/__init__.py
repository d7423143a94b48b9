"""Host reinforcement learning environments over WebSocket sessions.

>>> import envhost
>>> with envhost.running("my_module:MyEnvironment") as server:  # doctest: +SKIP
...     print(server.url)
"""

from .embed import running, serve

__all__ = ["running", "serve"]
