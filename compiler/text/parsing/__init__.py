"""Text to syntax tree: tokens, lark's parser with its kept tables, and syntax errors in the words of the language."""
