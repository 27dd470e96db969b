"""Pictures as data. In: Results, a part of time, a width. Out: cells, marks and sentences. No Textual."""
