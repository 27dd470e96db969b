"""Plans of graphs carried out with real data: from a Graph and a GraphPlan to a RunReport. Begin with ``run.py``."""
