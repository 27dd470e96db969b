"""What panes and screens are made of."""
