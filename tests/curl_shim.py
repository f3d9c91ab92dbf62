"""As much of curl as the examples of docs/http.md use, for machines that have none."""

import sys
import urllib.error
import urllib.request

FLAGS = {"-s", "-S", "-N", "-sS", "-sN"}


def main(arguments: list[str]) -> int:
    headers: dict[str, str] = {}
    method, url, data, out, after = "", "", None, "", ""
    words = iter(arguments)
    for word in words:
        if word in FLAGS:
            continue
        if word == "-H":
            name, _, value = next(words).partition(":")
            headers[name] = value.strip()
        elif word == "-X":
            method = next(words)
        elif word == "-d":
            data = next(words).replace("\n", "").encode()
        elif word == "-o":
            out = next(words)
        elif word == "-w":
            after = next(words)
        elif word.startswith("-"):
            raise SystemExit(f"curl: {word} is beyond this one")
        else:
            url = word
    if data is not None:
        headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
    request = urllib.request.Request(url, data, headers, method=method or None)
    try:
        answer = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        body, status = answer.read(), answer.status
    if out:
        with open(out, "wb") as file:
            file.write(body)
    else:
        sys.stdout.buffer.write(body)
    sys.stdout.buffer.write(after.replace("%{http_code}", str(status)).replace("\\n", "\n").encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
