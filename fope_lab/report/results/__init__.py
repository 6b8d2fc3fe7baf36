"""Results of finished stages, read from the store and aggregated over seeds."""
