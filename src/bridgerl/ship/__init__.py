"""A trained policy as one file that plays without this library."""
