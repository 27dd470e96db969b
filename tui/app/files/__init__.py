"""Files of the screen: which there are, which changed on disk, what is being edited, what is remembered. No Textual."""
