"""The slow half of a call, entered on a miss only: entries, views, fallback, registration."""
