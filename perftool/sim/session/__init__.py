"""One simulated run of a script: the replacements while it runs, and its effect on the device."""
