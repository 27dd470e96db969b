"""Plans carried out by a process per rank over ``torch.distributed`` with gloo; the one room that imports torch.

Steps, memories and findings are those of ``magus.runtime``. ``launch.py`` starts the processes on this machine,
``python -m magus.runtime.over_torch`` is one of those that torchrun starts, and ``tensors.py`` takes the tensors of a
job. What reaches another rank is a message: a head with the number of its step among those of all ranks, and the
values under the tag of that number.
"""
