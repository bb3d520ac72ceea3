#!/bin/sh
# install.sh SOURCE ROOT: lays out under ROOT what the image adds to its base, from a built checkout.
#
#   /opt/acp-sidecar        the program
#   /usr/local/bin          a link to it
#   /opt/agent              where `npm install --global` puts an agent; its bin/ is on the PATH
#   /var/lib/acp-sidecar    the store: a volume
#
# The last two must belong to the user that runs it.
set -eu
source=$1
root=$2

install -d "$root/opt/acp-sidecar/dist" "$root/usr/local/bin"
cp "$source/package.json" "$source/LICENSE" "$root/opt/acp-sidecar/"
cp -R "$source/node_modules" "$source/bin" "$root/opt/acp-sidecar/"
find "$root/opt/acp-sidecar/node_modules" -type d -empty -delete
cp -R "$source/dist/bin" "$root/opt/acp-sidecar/dist/"
install -m 0755 "$source/container/health.cjs" "$root/opt/acp-sidecar/health.cjs"
ln -sf /opt/acp-sidecar/bin/acp-sidecar.cjs "$root/usr/local/bin/acp-sidecar"
install -d -m 0755 "$root/opt/agent"
install -d -m 0700 "$root/var/lib/acp-sidecar"
