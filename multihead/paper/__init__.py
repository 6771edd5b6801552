"""The paper's tables and figures from this code, ours beside the paper's; each is a command of `multihead paper`."""
