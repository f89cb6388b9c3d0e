"""What quantization does to the task of real models: each module is a metric or two and runs as a table.

``python -m experiments.tasks.NAME ZOO_DIR [RUN_DIR]`` compares the members of a search's front with float.
"""
