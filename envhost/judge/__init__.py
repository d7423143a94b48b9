"""The judge: problems, the code in an answer, comparing outputs, verdicts."""
