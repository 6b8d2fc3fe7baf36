"""Claims about a sweep's metrics: their grammar, and the stages that they compare."""
