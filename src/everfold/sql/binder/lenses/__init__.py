"""The binder of Lenses SQL: turns its queries into the same plans as Flink SQL."""
