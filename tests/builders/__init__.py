"""Builders of Gaudi inputs: traces, logs and metrics files, in the form in which Gaudi's software writes them. The
authors had no Gaudi: every field, spelling and type follows public descriptions of the formats; handles, addresses and
engine indices are invented.

Import them as ``from builders.gaudi import GaudiTrace`` (``tests/conftest.py`` puts ``tests`` on the path;
``sample_traces/make_gaudi_samples.py`` does the same for itself).
"""
