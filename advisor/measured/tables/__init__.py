"""Tables of measured times. In: CSV. Out: rows beside what the models say of them."""
