"""Small programs that fetch $URL with one library each and write the body to standard output; failing otherwise."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from real.programs import need
from wrapping import environment

URLLIB = """
import os, sys, ssl, urllib.request
sys.stdout.buffer.write(urllib.request.urlopen(os.environ["URL"], timeout=300).read())
"""
REQUESTS = """
import os, sys, requests
answer = requests.get(os.environ["URL"], timeout=300, verify=os.environ["SSL_CERT_FILE"])
answer.raise_for_status()
sys.stdout.buffer.write(answer.content)
"""
HTTPX = """
import os, sys, ssl, httpx
trusted = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
with httpx.Client(http2="HTTP2" in os.environ, verify=trusted, timeout=300) as client:
    answer = client.get(os.environ["URL"])
answer.raise_for_status()
assert answer.http_version == ("HTTP/2" if "HTTP2" in os.environ else "HTTP/1.1")
sys.stdout.buffer.write(answer.content)
"""
AIOHTTP = """
import os, sys, ssl, asyncio, aiohttp
async def main():
    trusted = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
    patient = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(timeout=patient) as session, session.get(os.environ["URL"], ssl=trusted) as answer:
        answer.raise_for_status()
        sys.stdout.buffer.write(await answer.read())
asyncio.run(main())
"""
# Node's own client gives a server 10 seconds to connect, TLS and all; it lies behind this symbol once it is loaded.
NODE_PATIENCE = """
new Request('http://localhost/')
const behind = Symbol.for('undici.globalDispatcher.1'), Agent = globalThis[behind]?.constructor
if (Agent) globalThis[behind] = new Agent({connect: {timeout: 300_000}})
"""
FETCH = NODE_PATIENCE + """
fetch(process.env.URL).then(async answer => {
  if (!answer.ok) throw answer.status
  process.stdout.write(Buffer.from(await answer.arrayBuffer()))
}).catch(error => { console.error(error.cause || error); process.exitCode = 1 })
"""
NODE_HTTP2 = """
const http2 = require('http2'), url = new URL(process.env.URL)
const session = http2.connect(url.origin)
session.on('error', error => { console.error(error); process.exitCode = 1 })
const stream = session.request({':path': url.pathname})
stream.on('data', data => process.stdout.write(data)).on('error', () => { process.exitCode = 1 })
stream.on('close', () => session.close())
"""
# HTTP/2 and HTTP/1.1 over TLS on an inherited descriptor, as they are offered.
NODE_SERVER = """
const http2 = require('http2'), fs = require('fs')
const [fd, ...files] = process.argv.slice(1)
const [key, cert, body] = files.map(name => fs.readFileSync(name))
const server = http2.createSecureServer({key, cert, allowHTTP1: true}, (request, response) => response.end(body))
server.listen({fd: +fd}, () => console.log('ready'))
"""
JAVA = """
import java.io.FileInputStream;
import java.net.URI;
import java.net.http.*;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import javax.net.ssl.*;

class Fetch {
    public static void main(String[] none) throws Exception {
        var store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (var file = new FileInputStream(System.getenv("SSL_CERT_FILE"))) {
            store.setCertificateEntry("t", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        var trusted = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trusted.init(store);
        var context = SSLContext.getInstance("TLS");
        context.init(null, trusted.getTrustManagers(), null);
        var client = HttpClient.newBuilder().sslContext(context).build();
        var request = HttpRequest.newBuilder(URI.create(System.getenv("URL"))).build();
        System.out.print(client.send(request, HttpResponse.BodyHandlers.ofString()).body());
    }
}
"""
GO = """
package main

import ("fmt"; "io"; "net"; "net/http"; "os"; "time")

func main() {
	patient := http.DefaultTransport.(*http.Transport)
	patient.DialContext, patient.TLSHandshakeTimeout = (&net.Dialer{}).DialContext, 300 * time.Second
	answer, err := http.Get(os.Getenv("URL"))
	if err != nil { fmt.Fprintln(os.Stderr, err); os.Exit(1) }
	io.Copy(os.Stdout, answer.Body)
}
"""
# Statically linked against musl: a resolver of its own, which asks for both families at once.
MUSL = r"""
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void) {
    char host[200], path[200], port[] = "80", buffer[65536];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found, *one;
    int fd = -1;
    if (sscanf(getenv("URL"), "http://%199[^/]%199s", host, path) != 2) return 2;
    if (getaddrinfo(host, port, &hints, &found)) return 3;
    for (one = found; one; one = one->ai_next) {
        fd = socket(one->ai_family, SOCK_STREAM, 0);
        if (!connect(fd, one->ai_addr, one->ai_addrlen)) break;
        close(fd);
        fd = -1;
    }
    if (fd < 0) return 4;
    dprintf(fd, "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", path, host);
    FILE *in = fdopen(fd, "r");
    if (!fgets(buffer, sizeof buffer, in) || !strstr(buffer, " 200 ")) return 5;
    while (fgets(buffer, sizeof buffer, in) && strcmp(buffer, "\r\n"));
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, in));) fwrite(buffer, 1, n, stdout);
    return 0;
}
"""


@cache
def has_module(name: str) -> bool:
    """Whether this Python has a library, seen from a process of its own."""
    return subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True).returncode == 0


def need_modules(*names: str) -> None:
    """Skip where this Python lacks one."""
    for name in names:
        if not has_module(name):
            pytest.skip(f"{name} is not installed for {sys.executable}")


def go_binary(folder: Path) -> list[str]:
    """Go's own resolver and TLS, without a C library."""
    need("go")
    return [_built("gofetch", "fetch.go", GO, folder, "go", "build", "-o", "gofetch", "fetch.go")]


def musl_binary(folder: Path) -> list[str]:
    need("musl-gcc")
    flags = ("-static", "-O1", "-w", "-o", "muslfetch")
    return [_built("muslfetch", "fetch.c", MUSL, folder, "musl-gcc", *flags, "fetch.c")]


def java_source(folder: Path) -> list[str]:
    need("java", "javac")
    made = _built("Fetch.class", "Fetch.java", JAVA, folder, "javac", "-d", ".", "Fetch.java")
    return ["java", "-XX:TieredStopAtLevel=1", "-cp", str(Path(made).parent), "Fetch"]


_binaries: dict[str, bytes] = {}


def _built(name: str, source_name: str, source: str, folder: Path, *command: str) -> str:
    """The path of what a compiler makes; made once, for compilers are slow."""
    path = folder / name
    if name not in _binaries:
        (folder / source_name).write_text(source)
        env = {"PATH": environment(folder)["PATH"], "HOME": str(folder), "GO111MODULE": "off", "CGO_ENABLED": "0"}
        subprocess.run(command, cwd=folder, env=env, check=True)
        _binaries[name] = path.read_bytes()
    path.write_bytes(_binaries[name])
    path.chmod(0o755)
    return str(path)
