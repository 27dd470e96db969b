"""Expectations. In: expect blocks. Out: ``Expectation``, to be compared with results later."""
