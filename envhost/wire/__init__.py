"""The wire: OpenEnv's protocol over WebSocket, and the few HTTP pages beside it."""
