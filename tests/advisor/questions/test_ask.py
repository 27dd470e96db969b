"""What to switch on for a model: one answer by Python, the command line and the service, and what cannot be asked."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from magus.advisor import Advice, Advisor, ModelQuestion, RequestError, ask, model_question, shipped_model
from magus.advisor.answer.export import offers_document
from magus.advisor.answer.switches import sizes_of, switched, today_of, with_whole_activations
from magus.advisor.implementations.offers import offers_of
from magus.advisor.implementations.predict import Promise
from magus.advisor.policy.table import SweepPoint, table_of
from magus.advisor.questions.ask import QUICK, ModelAnswer
from magus.advisor.targets import Refused
from magus.advisor.targets.settings import TORCHTITAN, VLLM
from magus.compiler.codes import Code
from magus.compiler.from_model.frameworks import Need
from magus.compiler.ir import Cancelled
from magus.compiler.resolve.expect.expectation import Verdict
from magus.compiler.resolve.schedules.from_text import SERIAL
from magus.tui.commands.answers import step
from magus.tui.text.ask import ask_text
from magus.tui.text.door import Exit
from magus.tui.text.render import implementation_lines
from tests.helpers.commands import document, magus

pytestmark = pytest.mark.usefixtures("compiled_core", "one_model", "kept_answers")

SMALL = ("llama-3.2-1b", "h100", "vllm")
WORDS = ("ask", "--model", SMALL[0], "--gpu", SMALL[1], "--for", SMALL[2], "--tp", "4", "--prefill", "512")


@pytest.fixture(scope="module")
def answer() -> ModelAnswer:
    """The answer in Python."""
    return ask(model_question(*SMALL, tp=4, prefill=512))


def test_one_answer_by_every_way(answer: ModelAnswer) -> None:
    pytest.importorskip("starlette", reason="the extra serve is not installed")
    from magus.tui.service.app import Limits, application
    from magus.tui.service.openapi import ASK_PATH, openapi_document
    from tests.helpers.service import call

    python = json.loads(json.dumps(answer.document()))
    body = json.dumps({"model": SMALL[0], "gpu": SMALL[1], "for": SMALL[2], "tp": 4, "prefill": 512}).encode()
    status, served, _ = asyncio.run(call(application(Advisor.load(), Limits(600.0)), body, path=ASK_PATH))

    assert status == 200 and served == python == document(*WORDS)
    assert magus(*WORDS).stdout.strip() == ask_text(answer).strip()
    required = openapi_document()["components"]["schemas"]["AskAnswer"]["required"]
    assert set(required) == set(served)
    assert python["schema"] == "magus-ask/1" and python["today_us"] > 0
    assert (
        python["file"] is None and python["no_file"] == "nothing that vLLM can switch on pays here; no file is needed"
    )


def test_another_version_is_marked_by_every_way(answer: ModelAnswer) -> None:
    pytest.importorskip("starlette", reason="the extra serve is not installed")
    from magus.tui.service.app import Limits, application
    from magus.tui.service.openapi import ASK_PATH
    from tests.helpers.service import call

    def served(version: str) -> tuple[int, Any]:
        body = json.dumps({"model": SMALL[0], "gpu": SMALL[1], "for": version, "tp": 4, "prefill": 512}).encode()
        return asyncio.run(call(application(Advisor.load(), Limits(600.0)), body, path=ASK_PATH))[:2]

    doubt = "this is known of 0.11: options and defaults of vLLM 0.12 may differ"
    newer = ask(model_question(*SMALL[:2], "vllm@0.12", tp=4, prefill=512))
    words = ["vllm@0.12" if word == "vllm" else word for word in WORDS]
    document_of = json.loads(json.dumps(newer.document()))
    assert document_of == json.loads(json.dumps(answer.document())) | {"version_doubt": doubt}
    assert served("vllm@0.12") == (200, document_of) and document(*words) == document_of
    assert f"  ! {doubt}\n" in ask_text(newer) == magus(*words).stdout.rstrip("\n") + "\n"

    with pytest.raises(RequestError) as caught:
        model_question(*SMALL[:2], "vllm@0.6", tp=4)
    done, (status, refused) = magus("ask", *words[1:5], "--for", "vllm@0.6"), served("vllm@0.6")
    for part in ("MGS203", caught.value.message, caught.value.hint):
        assert part in done.stderr and part in json.dumps(refused)
    assert status == 400 and done.exit_code == Exit.INPUT


@pytest.mark.slow
def test_the_file_of_vllm_says_what_its_gain_is_over(answer: ModelAnswer) -> None:
    def written(advice: Advice) -> str:
        point = SweepPoint((("M", "1"),), advice, SERIAL, {})
        return VLLM.text(table_of((), [advice], (point,), simulated=True), {})

    with pytest.raises(Refused, match=r"no pass for GEMM\+AR") as caught:
        written(answer.advice[0])
    assert "magus ask --for vllm" in caught.value.rejection.hint

    question = answer.question
    by_rows = Advisor.load().recommend(question.scenario(question.workloads[0], question.tokens, sequence=True), QUICK)
    text = " ".join(written(by_rows).replace("\n# ", " ").split())
    (switch,) = answer.switches
    gain = switch.promise.speedup
    assert f"fused {gain:.2f}x over today" in text and "gains are over the all_reduce that runs without these" in text
    assert not switch.pays and '"enable_sp": false' in text, "one decision"
    assert f": {gain:.2f}x" in ask_text(answer), "the same in the terminal"
    assert answer.document()["switches"][0]["gain"] == gain
    found = switched(question.facts, switch.switch, [by_rows])
    assert found is not None and found.promise.speedup == pytest.approx(gain)


def test_a_kernel_that_is_slower_than_today_is_said_to_lose(answer: ModelAnswer) -> None:
    slower, faster = (replace(answer, today_us=answer.today_us * factor) for factor in (0.25, 4))

    assert slower.simulated < 1 < faster.simulated
    assert "A kernel would lose: " in ask_text(slower) and "A kernel could gain: " in ask_text(faster)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("model", "tp"), [("gpt-oss-120b", 8), ("llama-3.2-1b", 4), ("qwen3-30b-a3b", 4), ("deepseek-v3", 8)]
)
def test_a_layer_by_rows_is_compared_with_what_runs_without(model: str, tp: int) -> None:
    question = model_question(model, "h100", "vllm", tp=tp, prefill=4096)
    name = question.workloads[0]
    today, by_rows = (question.scenario(name, sequence=each) for each in (None, True))
    whole = with_whole_activations(by_rows)

    assert whole is not None and today_of(question.facts, whole) == today_of(question.facts, today)
    assert today_of(question.facts, by_rows) != today_of(question.facts, today)
    assert with_whole_activations(today) is None


@pytest.mark.slow
def test_one_decision_by_question_service_list_table_and_file() -> None:
    pytest.importorskip("starlette", reason="the extra serve is not installed")
    from magus.tui.service.app import Limits, application
    from magus.tui.service.openapi import ASK_PATH
    from tests.helpers.service import call

    asked = {"model": "llama-3.2-1b", "gpu": "h100", "tp": 1, "dp": 8, "train": True, "seq_len": 2048}
    question, advisor = model_question(framework="torchtitan", **asked), Advisor.load()  # type: ignore[arg-type]
    answer = ask(question, advisor)
    body = json.dumps({**asked, "for": "torchtitan"}).encode()
    _, served, _ = asyncio.run(call(application(advisor, Limits(600.0)), body, path=ASK_PATH))
    assert served == json.loads(json.dumps(answer.document()))

    first = answer.first
    assert first is not None and first.switch.offer == "weights_ahead_by_engines"
    today, after = 0.0, 0.0
    for name in question.workloads:
        scenario = question.scenario(name)
        advice = advisor.recommend(scenario, QUICK)
        offer, default = advice.offer(first.switch.offer), advice.offer("weights_ahead")
        assert offer is not None and default is not None and advice.offers is not None
        today, after = today + default.us, after + offer.us

        listed = {each["name"]: each["us"] for each in offers_document(advice)["offers"]}  # type: ignore[index]
        assert listed[offer.name] == offer.us
        assert any(f"{offer.name} {offer.promise.speedup:.2f}x" in line for line in implementation_lines(advice.offers))
        point = SweepPoint((("M", "1"),), advice, SERIAL, {})
        text = TORCHTITAN.text(table_of((), [advice], (point,), simulated=True), {})
        assert text.endswith(f"\n{first.setting}\n")
        assert f"{default.us / offer.us:.2f}x over today" in text
    assert answer.today_us == pytest.approx(today) and first.promise.speedup == pytest.approx(today / after)


def test_the_text_has_a_dozen_lines_of_eighty_columns(answer: ModelAnswer) -> None:
    lines = ask_text(answer).splitlines()
    assert 5 <= len([line for line in lines if line]) <= 12
    assert max(map(len, lines)) <= 80 or any("compilation-config" in line for line in lines)
    assert lines[0].startswith("llama-3.2-1b (16 layers) on 4 x H100, TP4: prefill of 512 tokens")
    assert any(line.startswith("How sure: ") for line in lines)


def test_what_was_found_in_time_is_an_answer_and_marked(answer: ModelAnswer, monkeypatch: pytest.MonkeyPatch) -> None:
    known = list(answer.advice)

    def in_time(*args: object, **options: object) -> Advice:
        if not known:
            raise Cancelled
        return known.pop()

    monkeypatch.setattr(Advisor, "recommend", in_time)
    short = ask(model_question("qwen3-30b-a3b", "h100", "vllm", tp=1, dp=4, ep=4, prefill=512))

    assert not answer.interrupted and short.interrupted and short.document()["interrupted"]
    assert short.first is None and "dispatch and combine by DeepEP" in short.unknown
    assert "Stopped early" in ask_text(short) and "Stopped early" not in ask_text(answer)


@pytest.mark.slow
def test_what_is_switched_on_gains_over_today() -> None:
    answer = ask(model_question("llama-3.1-8b", "h100", "vllm", prefill=16384))
    first = answer.first

    assert first is not None and first.switch.offer == "torch_async_tp"
    assert first.promise.verdict is not Verdict.SERIAL and first.promise.speedup > 1.02
    assert first.pays_from is not None and first.pays_from <= 16384
    assert f'"sp_min_token_num": {first.pays_from}' in first.setting
    # What is compared with is what runs today, and not the library's layer by rows.
    assert answer.today_us <= answer.library_us == answer.advice[0].offers.library_us  # type: ignore[union-attr]
    assert answer.limit is not None and answer.limit >= answer.simulated


@pytest.mark.parametrize(
    ("question", "code", "field"),
    [
        ({"model": "llama-5"}, Code.MGS203, "model"),
        ({"framework": "tensorflow"}, Code.MGS203, "for"),
        ({"gpu": "h101"}, Code.MGS203, "gpu"),
        ({"tp": 7}, Code.MGS304, "num_attention_heads"),
        ({"ep": 8}, Code.MGS310, "ep"),
        ({"train": True}, Code.MGS520, "train"),
        ({"framework": "torchtitan"}, Code.MGS520, "for"),
        ({"framework": "deepspeed", "train": True, "model": "mixtral-8x7b", "tp": 1, "dp": 8}, Code.MGS520, "ep"),
        ({"prefill": 512, "decode": 8}, Code.MGS206, "decode"),
        ({"decode": 0}, Code.MGS307, "decode"),
        ({"model": "mixtral-8x7b", "ep": 16}, Code.MGS307, "ep"),
        ({"decode": 8, "sequences": 8}, Code.MGS206, "sequences"),
        ({"prefill": 512, "sequences": 3}, Code.MGS304, "sequences"),
        ({"prefill": 510, "tp": 1, "dp": 4}, Code.MGS304, "tokens"),
    ],
)
def test_what_cannot_be_asked_is_told(question: dict[str, Any], code: Code, field: str) -> None:
    asked: dict[str, Any] = {"model": SMALL[0], "gpu": SMALL[1], "framework": SMALL[2]} | question
    with pytest.raises(RequestError) as caught:
        ask(model_question(**asked))

    assert (caught.value.code, caught.value.field) == (code, field) and caught.value.hint


def test_groups_without_experts_are_asked_as_one_of_them() -> None:
    question = model_question(*SMALL, tp=2, dp=4, prefill=2048, sequences=8)
    one = model_question(*SMALL, tp=2, prefill=512, sequences=2)
    times = [today_of(each.facts, each.scenario()) for each in (question, one)]

    assert question.of_one == one and times[0] == times[1]
    assert ask(replace(one, tp=1)).today.startswith("no collective")


def test_a_prefill_of_more_sequences_attends_to_less() -> None:
    one = model_question(*SMALL, tp=4, prefill=2048)
    several = replace(one, sequences=8)
    assert "batch=8, causal" in several.text() and "batch" not in one.text()
    times = [today_of(each.facts, each.scenario()) for each in (one, several)]
    assert times[1].graph_us < times[0].graph_us
    assert times[1].exposed_us == pytest.approx(times[0].exposed_us)


def test_groups_with_experts_take_as_long_as_attention_and_experts() -> None:
    question = ModelQuestion(shipped_model("qwen3-30b-a3b"), "h100", "vllm", 128, tp=2, dp=2, ep=4)
    answer = ask(question)
    parts = [today_of(question.facts, question.scenario(name)) for name in ("attention", "experts")]

    assert answer.today_us == sum(each.us for each in parts) and answer.graph_us == sum(each.graph_us for each in parts)


@pytest.mark.slow
def test_groups_with_experts_gain_what_an_exchange_saves_of_the_experts() -> None:
    question = ModelQuestion(shipped_model("deepseek-v3"), "h200", "vllm", 1024, tp=2, dp=4, ep=8)
    answer = ask(question)
    parts = [today_of(question.facts, question.scenario(name)) for name in ("attention", "experts")]

    exchange = next(each for each in answer.switches if each.switch.offer == "deepep_low_latency")
    sent = offers_of(question.scenario("experts", exchange=True), only=["deepep"])
    offer = None if sent is None else sent.named("deepep_low_latency")
    assert offer is not None
    assert exchange.promise.speedup == pytest.approx(answer.today_us / (parts[0].us + offer.us))


@pytest.mark.parametrize(("tp", "dp", "ep"), [(4, 1, 1), (1, 4, 4)])
def test_sizes_of_a_layer_are_those_of_the_question(tp: int, dp: int, ep: int) -> None:
    question = ModelQuestion(shipped_model("qwen3-30b-a3b"), "h100", "vllm", 1024, tp=tp, dp=dp, ep=ep)
    sizes = sizes_of(question.scenario())

    assert (sizes.tokens, sizes.own_tokens) == (1024, 256)
    assert sizes.fill("TOKENS, OWN_TOKENS", 64) == "64, 256"


def test_what_has_no_measured_costs_is_named_in_the_layer() -> None:
    by_tp = model_question("llama-3.2-1b", "h100", "maxtext", train=True, seq_len=1024)
    by_data = replace(by_tp, tp=1, dp=8)

    named = [[each.name for each in one.scenario().explore.implementations] for one in (by_tp, by_data)]
    assert named == [["xla"], []]


def test_only_what_fits_the_question_is_offered() -> None:
    question = ModelQuestion(shipped_model("qwen3-30b-a3b"), "h100", "vllm", 1024, tp=4)
    by_data = replace(question, tp=1, dp=4, ep=4)

    assert question.can_do == {Need.TP, Need.SERVE} and by_data.can_do == {Need.DP, Need.EP, Need.SERVE}
    offered = [[one.offer for one in each.switches] for each in (question, by_data)]
    assert offered == [["torch_async_tp"], ["deepep_low_latency", "deepep", "two_batch_overlap"]]
    on_amd = replace(question, gpu="mi355x")
    assert on_amd.switches == () and [one.offer for one in on_amd.not_here] == ["torch_async_tp"]


def test_the_file_is_written_beside_the_answer_or_refused(answer: ModelAnswer, tmp_path: Path) -> None:
    out = tmp_path / "settings.yaml"
    done = magus(*WORDS, "-o", out)

    assert answer.first is None and done.exit_code == 1 and not out.exists()
    assert "MGS550 error: nothing that vLLM can switch on pays here" in done.stderr
    assert done.stdout.strip() == ask_text(answer).strip()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--model", "llama-3.2-1b", "--model", "llama-3.1-8b", "--for", "vllm"), 2, "-o and --gpus are about one"),
        (("--model", "llama-3.2-1b", "--for", "megatron", "--train", "--gpus", "8"), 2, "-o is of --tp, --dp and --ep"),
        (("--model", "mixtral-8x7b", "--for", "transformer-engine", "--train"), 1, "have no experts"),
        (("--model", "llama-3.2-1b", "--for", "transformer-engine"), 1, "transformer-engine does not serve"),
    ],
)
def test_files_that_cannot_be_are_explained(words: tuple[str, ...], code: int, message: str, tmp_path: Path) -> None:
    done = magus("ask", *words, "--gpu", "h100", "-o", tmp_path / "file")

    assert done.exit_code == code and message in " ".join(done.stderr.split())
    assert not list(tmp_path.iterdir())


def test_who_lays_out_no_step_says_so() -> None:
    done = magus(
        "ask", "--model", "llama-3.2-1b", "--gpu", "h100", "--for", "transformer-engine", "--train", "--gpus", "8"
    )

    assert done.exit_code == 1 and "MGS520" in done.stderr and "lays out no training step" in done.stderr


def test_a_step_for_another_version_is_marked_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[str]()

    def advised(*text: str, framework: str, as_json: bool) -> Exit:
        told.append(framework)
        return Exit.DONE

    monkeypatch.setattr(step, "advise_step_text", advised)
    words = ("ask", "--model", "llama-3.2-1b", "--gpu", "h100", "--train", "--gpus", "8")
    done, known = (magus(*words, "--for", name) for name in ("torchtitan@0.2", "torchtitan"))

    assert told == ["torchtitan", "torchtitan"] and not known.stderr
    assert "options and defaults of torchtitan 0.2 may differ" in done.stderr


@pytest.mark.parametrize(
    ("promise", "words"),
    [
        (Promise(1.05, 0.1, in_graph=1.1, on_host=0.98), ", 0.98x where the GPU waits for calls"),
        (Promise(1.05, 0.1, in_graph=1.0), ", 1.00x in a CUDA graph"),
        (Promise(1.01, 0.1, in_graph=1.0), ""),
        (Promise(1.05, 0.1, in_graph=1.04), ""),
    ],
)
def test_what_pays_by_some_calls_alone_says_by_which_not(answer: ModelAnswer, promise: Promise, words: str) -> None:
    (switch,) = answer.switches
    text = " ".join(ask_text(replace(answer, switches=(replace(switch, promise=promise),))).split())

    assert ("does not gain by every call:" in text) is bool(words)
    line = text.partition("with async-TP: ")[2].partition(" A kernel")[0]
    assert line.endswith(words) and line.startswith(f"{promise.speedup:.2f}x")
    assert (", " in line.replace(", worth trying", "")) is bool(words)


@pytest.mark.parametrize(
    ("gpu", "code", "message"), [({}, "MGS209", "none is given"), ({"gpu": 1}, "MGS310", "it is no text")]
)
def test_a_gpu_that_is_not_given_or_no_text(gpu: dict[str, int], code: str, message: str) -> None:
    from magus.tui.service.questions import model_question_of

    with pytest.raises(RequestError) as caught:
        model_question_of(json.dumps({"model": "llama-3.1-8b", "for": "decode", **gpu}).encode())
    assert (caught.value.code.name, caught.value.field, caught.value.message) == (code, "gpu", message)
