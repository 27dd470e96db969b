"""The shipped hardware library, written in the language itself; ``use "amd/mi300x"`` reads ``amd/mi300x.mgs``."""
