"""The paper's tables and figures from this code, ours beside the paper's: one file for each command."""
