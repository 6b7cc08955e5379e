# One image for all processes: webhook, controller, console, certs, install and the CLI.
#
#   docker build --build-arg BASE=python:3.13-slim@sha256:… --tag volcano-global:0.1.0 .
#
# The base image is an argument, so that it can be pinned by digest and come from any registry. All packages are locked by
# hash in the requirements files. Only pip downloads files, and the last stage has no compiler.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /source
COPY requirements.txt requirements-build.txt ./
RUN python -m pip install --quiet --require-hashes --requirement requirements-build.txt \
 && python -m pip install --quiet --require-hashes --no-compile --only-binary :all: \
      --target /opt/volcano-global --requirement requirements.txt
COPY pyproject.toml LICENSE README.md ./
COPY certs certs
COPY console console
COPY controller controller
COPY install install
COPY webhook webhook
# The time makes the wheel reproducible byte for byte. Without --upgrade, pip leaves out bin/volcano-global, because the
# folder bin exists.
ENV SOURCE_DATE_EPOCH=1577836800
RUN python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheel . \
 && python -m pip install --quiet --no-deps --no-compile --upgrade --target /opt/volcano-global /wheel/*.whl \
 && python -m compileall -q --invalidation-mode unchecked-hash /opt/volcano-global

FROM ${BASE}
LABEL org.opencontainers.image.title="volcano-global" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/volcano-global /opt/volcano-global
ENV PATH=/opt/volcano-global/bin:$PATH \
    PYTHONPATH=/opt/volcano-global \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /
CMD ["volcano-global", "--help"]
