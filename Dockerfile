# The sidecar without an agent. Yours in three lines:
#
#   FROM acp-sidecar
#   RUN npm install --global my-agent
#   CMD ["serve", "--", "my-agent", "--acp"]
#
# Run it with nothing writable but the store:
#
#   docker run --init --read-only --tmpfs /tmp -v acp:/var/lib/acp-sidecar my-image
#
# --init (or shareProcessNamespace in Kubernetes) collects what an agent's children leave behind.

FROM node:22-bookworm-slim AS build
WORKDIR /src
COPY . .
RUN container/build.sh && container/install.sh . /image

FROM node:22-bookworm-slim
COPY --from=build /image/ /
RUN chown node:node /opt/agent /var/lib/acp-sidecar
ENV NODE_ENV=production \
    NPM_CONFIG_PREFIX=/opt/agent \
    PATH=/opt/agent/bin:$PATH \
    ACP_SIDECAR_STORE=/var/lib/acp-sidecar \
    ACP_SIDECAR_LISTEN=127.0.0.1:7777
WORKDIR /home/node
USER node
VOLUME /var/lib/acp-sidecar
EXPOSE 7777
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 CMD ["node", "/opt/acp-sidecar/health.cjs"]
ENTRYPOINT ["node", "--max-semi-space-size=4", "/opt/acp-sidecar/bin/acp-sidecar.cjs"]
CMD ["serve", "--help"]
