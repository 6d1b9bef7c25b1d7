"""Records a few steps of an unmodified program. ``plan`` says what to record and passes it to the program through its
environment; ``hook`` waits in each Python process until PyTorch is imported; ``steps`` detects the end of a step;
``recorder`` records.
"""
