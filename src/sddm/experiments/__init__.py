"""The paper's experiments, and a demonstration."""
