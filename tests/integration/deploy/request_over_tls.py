"""Runs inside a namespace: one HTTPS request with a host's certificate; prints status and body.

python request_over_tls.py TLS_DIRECTORY URL [JSON_BODY]
"""

import json
import ssl
import sys

import httpx

directory, url, *body = sys.argv[1:]
context = ssl.create_default_context(cafile=f"{directory}/ca.crt")
context.load_cert_chain(f"{directory}/host.crt", f"{directory}/host.key")
with httpx.Client(verify=context, trust_env=False, timeout=60) as client:
    reply = client.post(url, content=body[0]) if body else client.get(url)
print(json.dumps({"status": reply.status_code, "text": reply.text}))
