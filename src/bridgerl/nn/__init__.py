"""Network parts shared by actors and critics."""
