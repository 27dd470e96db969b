"""What is computed and sent, as resolved data: tensors, patterns, the kernels of a pair, and graphs of ops."""
