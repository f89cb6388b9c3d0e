"""Other tools that quantize for onnxruntime, each in an environment of its own, against autoquant.

``make`` lets one of them work on a model for a given time, ``versus`` measures what they made together with ours.
"""
