"""Studies run: their cost beforehand, a pool of processes, a Ray cluster."""
