"""The shipped ranker: ``ranker-*.trees`` holds the trees, ``ranker.json`` where they come from and how good they are.

Both are written by ``magus train``. ``ranker.json`` gives the hash of the other, the fingerprint of the features and of
the simulator behind the training runs, and the scores on scenarios that were not trained on.
"""
