"""Records a few steps of an unmodified program. ``plan`` describes what to record, and is passed to the program
through its environment. ``hook`` waits in each Python process until PyTorch is imported, ``steps`` detects the end of
each step, and ``recorder`` records.
"""
