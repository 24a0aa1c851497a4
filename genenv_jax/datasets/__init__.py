"""Downloads and checks a benchmark's files, and exports its tasks for other programs.

The benchmarks read the published files themselves.  From these, `genenv datasets` also writes the tasks as
a TensorFlow Dataset in array_record files, which any program reads without this package or TensorFlow:

tfds.data_source("genenv_bfcl/v4", split="simple_python")[0]["messages"]  # JSON
"""
