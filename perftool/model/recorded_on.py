"""The key under which our recorders describe the machine and the recording in a trace; see docs/recording.md."""

RECORDED_KEY = "perftoolRecording"
