"""The families of models of transformers: a file for each says how it is read and written."""
