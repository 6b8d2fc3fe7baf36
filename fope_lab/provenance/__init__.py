"""Where a number comes from: the source code, the checkout and the versions that made it."""
