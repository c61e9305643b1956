# Ebb's image: the commands ebb, ebb-scheduler and ebb-agent, run by a user without privileges. `docker compose build` makes it.
# What is installed is the part of requirements.lock that the three need, each file checked against its hash.
ARG PYTHON=3.11-slim

FROM python:${PYTHON} AS tools
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY pyproject.toml requirements.lock deploy/compose/needed.py ./
# What builds wheels, ours and those that come as sources; of the lock, too.
RUN python needed.py packages hatchling setuptools > build.lock \
 && python -m venv /opt/build \
 && /opt/build/bin/pip install --quiet --require-hashes --no-deps --only-binary :all: -r build.lock

# Changes with the lock, and not with each line of code.
FROM tools AS dependencies
RUN python needed.py extras scheduler agent > image.lock \
 && /opt/build/bin/pip wheel --quiet --require-hashes --no-deps --no-build-isolation --wheel-dir /wheels -r image.lock \
 && python -m venv --without-pip /opt/ebb \
 && /opt/build/bin/pip --python /opt/ebb/bin/python install --quiet --no-index --no-deps /wheels/*.whl

FROM tools AS wheel
COPY README.md LICENSE ./
COPY third_party third_party
COPY proto proto
COPY migrations migrations
COPY client_sdk client_sdk
COPY ebb_common ebb_common
COPY ebb_inject ebb_inject
COPY node_agent node_agent
COPY scheduler_service scheduler_service
RUN /opt/build/bin/pip wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir /wheels .

FROM dependencies AS installed
COPY --from=wheel /wheels /ours
RUN /opt/build/bin/pip --python /opt/ebb/bin/python install --quiet --no-index --no-deps /ours/*.whl \
 && /opt/build/bin/pip --python /opt/ebb/bin/python check

FROM python:${PYTHON} AS runtime
LABEL org.opencontainers.image.title="Ebb" \
      org.opencontainers.image.description="Scheduler, node agent and command line of Ebb, a scheduler for shared GPU clusters" \
      org.opencontainers.image.licenses="Apache-2.0"
# openssl is there by the base image's ca-certificates; deploy/compose/setup makes certificates with it.
# A volume that is new takes owner and mode of the directory that it is mounted on.
RUN openssl version \
 && groupadd --gid 7737 ebb && useradd --uid 7737 --gid ebb --create-home ebb \
 && install -d -o ebb -g ebb -m 0700 /var/lib/ebb /etc/ebb /etc/ebb/authority /etc/ebb/scheduler /etc/ebb/agent /etc/ebb/user \
 && install -d -o ebb -g ebb -m 0755 /checkpoints
COPY --from=installed /opt/ebb /opt/ebb
COPY --chmod=0755 deploy/compose/setup /usr/local/bin/ebb-setup
ENV PATH=/opt/ebb/bin:$PATH PYTHONDONTWRITEBYTECODE=1
USER 7737:7737
WORKDIR /home/ebb
STOPSIGNAL SIGTERM
# Whichever of the two runs here; what docker-compose.yml sets is more exact.
HEALTHCHECK --interval=20s --timeout=10s --start-period=30s CMD ebb-scheduler check 2>/dev/null || ebb-agent check
CMD ["ebb", "--help"]
