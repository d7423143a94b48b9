"""Train language models against environments that live on another machine."""
