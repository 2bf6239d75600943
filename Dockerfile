# A broker of its own, or one of a cluster: docs/guides/containers.md.
#
#     docker build --tag dejaq .
#     docker run --read-only --volume dejaq:/var/lib/dejaq --publish 7464:7464 dejaq
#
# BASE is any image with Python 3.11 or newer and its venv, in both stages the same: the environment that the
# first fills is copied as it is.
ARG BASE=docker.io/library/python:3.13-slim

FROM ${BASE} AS build
WORKDIR /build
COPY requirements/build.txt requirements/image.txt ./requirements/
# Each file of a package is checked against its hash; what no broker imports is not copied.
RUN python3 -m venv /opt/dejaq \
    && /opt/dejaq/bin/python -m pip install --no-cache-dir --no-deps --require-hashes --only-binary :all: \
        --requirement requirements/image.txt \
    && python3 -m venv /opt/tools \
    && /opt/tools/bin/python -m pip install --no-cache-dir --no-deps --require-hashes \
        --requirement requirements/build.txt
COPY . .
RUN /opt/tools/bin/python -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/dejaq/bin/python -m pip install --no-cache-dir --no-deps --no-index /wheels/*.whl \
    && cd /opt/dejaq/lib/python3*/site-packages \
    && rm -rf pyarrow/tests pyarrow/include pyarrow/src pyarrow/includes \
        numpy/_core/tests numpy/*/tests numpy/tests numpy/f2py numpy/_core/include pip pip-*.dist-info \
        setuptools setuptools-*.dist-info \
    && find . -name '*.pyx' -delete -o -name '*.pxd' -delete -o -name '*.a' -delete \
    && find . -name '__pycache__' -prune -exec rm -rf {} + \
    && /opt/dejaq/bin/python -m compileall -q --invalidation-mode unchecked-hash .

FROM ${BASE}
COPY --from=build /opt/dejaq /opt/dejaq
# A number, since Kubernetes proves by it that it is not root. The directory is there for volumes to have its owner.
RUN mkdir -p /var/lib/dejaq && chown 10001:10001 /var/lib/dejaq && chmod 0700 /var/lib/dejaq
ENV PATH=/opt/dejaq/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/var/lib/dejaq \
    DEJAQ_JOURNAL__URL=/var/lib/dejaq \
    DEJAQ_SERVER__HOST=0.0.0.0 \
    DEJAQ_LOG__FORMAT=json
USER 10001:10001
WORKDIR /var/lib/dejaq
VOLUME /var/lib/dejaq
EXPOSE 7464 7465
# The broker hands topics over, or writes a snapshot: give it two minutes (docker stop --time 120).
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python3", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:%s/readyz' % os.environ.get('DEJAQ_SERVER__HTTP_PORT', '7465'), timeout=4)"]
ENTRYPOINT ["dejaq"]
CMD ["serve"]
