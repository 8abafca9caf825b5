"""What a step costs: ours part by part, other libraries side by side.

Every measurement is a process of its own on its own cores, so that nobody inherits threads, caches
or an allocator; contenders take turns, and medians are reported.
"""
