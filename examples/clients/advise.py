"""Ask a running ``magus serve`` which schedule to use: python advise.py [URL]. Needs Python alone."""

import json
import sys
import urllib.error
import urllib.request

QUESTION = {
    "pattern": "AG+GEMM",
    "m": 8192,
    "n": 3584,
    "k": 8192,
    "gpu": "NVIDIA H100 80GB HBM3",
    "ranks": 8,
    "simulate": False,
}


def advise(url: str, question: dict[str, object]) -> dict[str, object]:
    """Return the answer to a question; SystemExit says what is wrong with it."""
    request = urllib.request.Request(f"{url}/v1/recommend", json.dumps(question).encode(), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            answer: dict[str, object] = json.load(response)
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{error.code}: {json.load(error)['error']}") from None
    return answer


if __name__ == "__main__":
    found = advise(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8377", QUESTION)
    print(found["verdict"], found["schedule"], f"{found['gain']:.2f}x", found["source"])
