"""The parts of `bench_sessions.py`."""
