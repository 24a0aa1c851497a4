"""The benchmarks as TensorFlow Datasets, written as array_record files; no TensorFlow is needed.

genenv datasets --name=bfcl                 # downloads, checks, prepares
genenv datasets --name=bfcl --manual_dir=/data/bfcl   # from existing files

from genenv_jax.datasets.builders import builder, to_task
source = builder("bfcl").as_data_source("simple_python")  # random access, NumPy, no TensorFlow
task = to_task(source[0])                                 # a genenv_jax.benchmarks.base.Task
"""
