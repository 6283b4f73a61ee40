# `make image` builds it: `toolcrib serve --http` on port 8737 as a user without privileges (docs/how-to/install.md).
ARG PYTHON=3.11
FROM python:${PYTHON}-slim AS build
ARG EXTRAS=code,console,otel,postgres,samples,tokens,web,workflows
WORKDIR /source
COPY pyproject.toml hatch_build.py constraints.txt README.md LICENSE CHANGELOG.md ./
COPY src src
RUN python -m venv /opt/toolcrib \
    && /opt/toolcrib/bin/python -m pip install --no-cache-dir --constraint constraints.txt ".[${EXTRAS}]"

FROM python:${PYTHON}-slim
# bubblewrap is the sandbox of the shell tools; git is for the sample server and the git tools; tini ends what servers
# leave behind: orphans of a container stay as zombies where its first process does not wait for them.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap git tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 toolcrib \
    && install --directory --owner=toolcrib --group=toolcrib /data /work
COPY --from=build /opt/toolcrib /opt/toolcrib
ENV PATH=/opt/toolcrib/bin:$PATH \
    XDG_CONFIG_HOME=/data/config XDG_DATA_HOME=/data/share XDG_STATE_HOME=/data/state XDG_CACHE_HOME=/data/cache
USER toolcrib
WORKDIR /work
VOLUME ["/data", "/work"]
EXPOSE 8737
# Podman and Buildah keep it in the format of Docker alone, which `make image` asks them for.
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as r; r.build_opener(r.ProxyHandler({})).open('http://127.0.0.1:8737/healthz', timeout=4)"]
ENTRYPOINT ["tini", "--", "toolcrib"]
CMD ["serve", "--http", "--host", "0.0.0.0"]
