"""Hardware. In: the blocks of gpus, links, switches and systems. Out: ``Gpu``, ``Link``, ``Fabric``, ``System``."""
