# README's two commands on an empty Debian 12; tools/check_dockerfile.py holds this file to the README.
#
#   docker build -t lockstep .
#   docker run --rm lockstep                # make demo
#   docker run --rm lockstep make test
FROM debian:12
RUN apt-get update && apt-get install -y --no-install-recommends git make python3 && rm -rf /var/lib/apt/lists/*
WORKDIR /lockstep
COPY . .
RUN make build
CMD ["make", "demo"]
