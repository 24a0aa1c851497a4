# The image of launch/jobset.yaml.  EXTRAS are those of setup.py, with commas; none is a CPU build.
#
#   docker build --build-arg EXTRAS=tpu,bfcl --tag genenv_jax:tpu .
FROM python:3.11-slim
ARG EXTRAS=""
ENV PYTHONUNBUFFERED=1
WORKDIR /app
# What it needs, in a layer that a change of the source leaves alone.
COPY setup.py pyproject.toml README.md ./
RUN mkdir -p genenv_jax configs/ablations && touch genenv_jax/__init__.py \
    && pip install --no-cache-dir --editable ".${EXTRAS:+[$EXTRAS]}" \
    && case ",$EXTRAS," in *,bfcl,*) pip install --no-cache-dir --no-deps bfcl-eval==2026.3.23 ;; esac \
    && useradd --create-home --uid 1000 genenv
COPY configs configs
COPY genenv_jax genenv_jax
USER 1000
ENTRYPOINT ["python", "-m", "genenv_jax.main"]
