"""Published tables and figures, as numbers to put beside a sweep's own."""
