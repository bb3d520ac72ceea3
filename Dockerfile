# The sidecar without an agent: build your own image from this one, or mount the agent.
#   docker run --init -v acp:/var/lib/acp-sidecar ... serve -- my-agent
# --init (or shareProcessNamespace in Kubernetes) collects what an agent's children leave behind.

FROM node:22-bookworm-slim AS build
WORKDIR /src
COPY package.json package-lock.json .npmrc ./
RUN npm ci
COPY . .
RUN npm run build && npm prune --omit=dev

FROM node:22-bookworm-slim
ENV NODE_ENV=production \
    ACP_SIDECAR_STORE=/var/lib/acp-sidecar \
    ACP_SIDECAR_LISTEN=127.0.0.1:7777
RUN install -d -o node -g node -m 0700 /var/lib/acp-sidecar
WORKDIR /opt/acp-sidecar
COPY --from=build /src/package.json ./
COPY --from=build /src/node_modules ./node_modules
COPY --from=build /src/bin ./bin
COPY --from=build /src/dist ./dist
RUN ln -s /opt/acp-sidecar/bin/acp-sidecar.cjs /usr/local/bin/acp-sidecar
USER node
VOLUME /var/lib/acp-sidecar
EXPOSE 7777
STOPSIGNAL SIGTERM
# Keep port 7777 when you change --listen.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
  CMD ["node", "-e", "fetch('http://127.0.0.1:7777/healthz').then((r)=>process.exit(r.ok?0:1),()=>process.exit(1))"]
ENTRYPOINT ["node", "--max-semi-space-size=4", "/opt/acp-sidecar/bin/acp-sidecar.cjs"]
CMD ["serve", "--help"]
