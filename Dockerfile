# A broker of its own, or one of a cluster: docs/guides/containers.md.
#
#     docker build --tag dejaq .
#     docker run --read-only --volume dejaq:/var/lib/dejaq --publish 7464:7464 dejaq
#
# BASE is any image with Python 3.11 or newer, in both stages the same: the environment that the first fills is
# copied as it is. `make image` builds on Debian's packages, with another PIP, from wheels that are there already.
ARG BASE=docker.io/library/python:3.13-slim

FROM ${BASE} AS build
ARG PIP="python3 -m pip"
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
WORKDIR /build
COPY requirements/build.txt requirements/image.txt ./requirements/
COPY scripts/slim.py scripts/lock_sbom.py ./scripts/
# Each file of a package is checked against its hash; what no broker needs is not copied.
RUN python3 -m venv --without-pip /opt/dejaq \
    && ${PIP} --python /opt/dejaq/bin/python install --no-cache-dir --no-deps --require-hashes \
        --only-binary :all: --no-compile --requirement requirements/image.txt \
    && python3 scripts/slim.py /opt/dejaq \
    && python3 -m venv --without-pip /opt/tools \
    && ${PIP} --python /opt/tools/bin/python install --no-cache-dir --no-deps --require-hashes \
        --only-binary :all: --no-compile --requirement requirements/build.txt
COPY . .
RUN python3 scripts/lock_sbom.py requirements/image.txt /opt/dejaq/sbom.cdx.json \
    && /opt/tools/bin/python -m hatchling build -t wheel -d /wheels \
    && ${PIP} --python /opt/dejaq/bin/python install --no-cache-dir --no-deps --no-index --no-compile /wheels/*.whl \
    && PYTHONHASHSEED=0 /opt/dejaq/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/dejaq/lib

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
