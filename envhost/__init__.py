"""Host reinforcement learning environments over WebSocket sessions."""
