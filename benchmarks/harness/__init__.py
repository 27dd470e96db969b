"""What benchmarks share: loads, drawn scenarios, other checkouts, machines to compare with, and how they report."""
