"""Advice on workloads: which schedule carries out a whole layer, chosen for all of its ops together."""
