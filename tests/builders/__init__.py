"""Builders of Gaudi inputs: traces, logs and metrics files in the formats that Gaudi's software writes. The authors had
no Gaudi, so all fields, spellings and types follow public descriptions of the formats; handles, addresses and engine
indices are invented.

Import them as ``from builders.gaudi import GaudiTrace``. ``tests/conftest.py`` puts ``tests`` on the import path, and
so does ``sample_traces/make_gaudi_samples.py``.
"""
