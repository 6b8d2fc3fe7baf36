"""Published benchmarks: readers for the files as their authors distribute them."""
