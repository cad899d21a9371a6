"""How page bytes look on the wire. ``open`` names the codec; a receiver refuses one it lacks.

There is one: the bytes as they lie in memory. It is lossless and costs nothing, so no code runs for
it; a codec that does something brings its own encode and decode here.
"""

RAW = "raw"

CODECS = {RAW: "page bytes as they lie in memory; lossless"}
