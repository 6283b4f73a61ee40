"""What runs inside of the sandbox: programs that see only Python itself, and that nothing of ours imports."""
