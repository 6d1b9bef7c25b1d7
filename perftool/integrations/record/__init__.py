"""Recording a few steps of a program that nobody changed for it.

``plan`` says what to record and hands it to the program by its environment; ``hook`` waits in each Python of the
program until PyTorch is imported; ``steps`` finds out where a step of the program ends; ``recorder`` records.
"""
