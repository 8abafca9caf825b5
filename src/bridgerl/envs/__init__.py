"""Tasks: how an environment is made, named, wrapped, watched and known again."""
