"""Published benchmarks: their files, as their authors distribute them."""
