"""The sandbox: cells in which programs run, bounded and alone."""
