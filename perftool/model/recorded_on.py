"""What our recorders and the reader of their recordings agree on; see docs/recording.md."""

# The key under which a trace describes the machine and the recording.
RECORDED_KEY = "perftoolRecording"
# A module whose path of classes has more characters is left out.
LONGEST_PATH = 1_000
