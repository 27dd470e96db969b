"""Training steps carried out with real data: from a StepWork to a RunReport.

Every rank of the mesh has weights, activations and gradients of its own; passes of layers, sends and collectives are
carried out by their plans, in the order of the pipeline. Start at ``run.py``.
"""
