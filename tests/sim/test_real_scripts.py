"""Models and loops as people write them, tiny and random: the values of the CPU, and no unknown cut of the graph.

Every graph ends at ``mark_step``; a further reason stands beside its script, with why.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sim.runs import Run, run

pytest.importorskip("transformers")

TRAIN = """
import sys
torch.manual_seed(0)
{model}
device = sys.argv[1]
model = model.to(device).train()
{batch}
batch = {{name: each.to(device) for name, each in batch.items()}}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    loss = {loss}
    loss.backward()
    if device == "hpu":
        htcore.mark_step()
    optimizer.step()
    optimizer.zero_grad()
    if device == "hpu":
        htcore.mark_step()
    print("loss", loss.item())
"""
TEXT = "batch = {'input_ids': torch.randint(0, 64, (2, 12))}\nbatch['labels'] = batch['input_ids']"
KNOWN = {"host step marker"}


@dataclass(frozen=True)
class Script:
    """A model, its batch and its loss; ``cuts`` are reasons beyond KNOWN, ``fallbacks`` ops that the bridge lacks."""

    model: str
    batch: str = TEXT
    loss: str = "model(**batch).loss"
    cuts: frozenset[str] = field(default_factory=frozenset)
    fallbacks: frozenset[str] = field(default_factory=frozenset)

    @property
    def source(self) -> str:
        return TRAIN.format(model=self.model, batch=self.batch, loss=self.loss)


def hugging_face(kind: str, **sizes: object) -> str:
    config, model = kind.split()
    options = ", ".join(f"{name}={value!r}" for name, value in sizes.items())
    return f"from transformers import {config}, {model}\nmodel = {model}({config}({options}))"


SMALL = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48,
         "max_position_embeddings": 32}  # fmt: skip
DROP = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}

SCRIPTS = {
    "Bert": Script(hugging_face("BertConfig BertForMaskedLM", **SMALL, **DROP)),
    "Roberta": Script(hugging_face("RobertaConfig RobertaForMaskedLM", **{**SMALL, "pad_token_id": 0}, **DROP)),
    "GPT-2": Script(
        hugging_face(
            "GPT2Config GPT2LMHeadModel",
            vocab_size=64,
            n_positions=32,
            n_embd=32,
            n_layer=2,
            n_head=2,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    ),
    "Llama": Script(hugging_face("LlamaConfig LlamaForCausalLM", **SMALL, num_key_value_heads=1)),
    "Qwen2": Script(hugging_face("Qwen2Config Qwen2ForCausalLM", **SMALL, num_key_value_heads=1)),
    "T5": Script(
        hugging_face(
            "T5Config T5ForConditionalGeneration",
            vocab_size=64,
            d_model=32,
            d_kv=16,
            d_ff=48,
            num_layers=2,
            num_heads=2,
            dropout_rate=0.0,
            decoder_start_token_id=0,
        )
    ),
    "ViT": Script(
        hugging_face(
            "ViTConfig ViTForImageClassification",
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=48,
            image_size=32,
            patch_size=8,
        ),
        batch="batch = {'pixel_values': torch.randn(2, 3, 32, 32), 'labels': torch.tensor([0, 1])}",
    ),
    "Mixtral": Script(
        hugging_face("MixtralConfig MixtralForCausalLM", **SMALL, num_key_value_heads=1, num_local_experts=4),
        # Tokens are counted for each expert by an op that the bridge does not register.
        cuts=frozenset({"cpu fallback aten::histc"}),
        fallbacks=frozenset({"aten::histc"}),
    ),
    "Mistral": Script(hugging_face("MistralConfig MistralForCausalLM", **SMALL, num_key_value_heads=1)),
    "Gemma": Script(hugging_face("GemmaConfig GemmaForCausalLM", **SMALL, num_key_value_heads=1, head_dim=16)),
    "Phi": Script(hugging_face("PhiConfig PhiForCausalLM", **SMALL, resid_pdrop=0.0)),
    "GPT-NeoX": Script(hugging_face("GPTNeoXConfig GPTNeoXForCausalLM", **SMALL)),
    "Electra": Script(hugging_face("ElectraConfig ElectraForMaskedLM", **SMALL, embedding_size=32, **DROP)),
    "Albert": Script(hugging_face("AlbertConfig AlbertForMaskedLM", **SMALL, embedding_size=32, **DROP)),
    "DistilBert": Script(
        hugging_face(
            "DistilBertConfig DistilBertForMaskedLM",
            vocab_size=64,
            dim=32,
            hidden_dim=48,
            n_layers=2,
            n_heads=2,
            max_position_embeddings=32,
            dropout=0.0,
            attention_dropout=0.0,
        )
    ),
    "OPT": Script(
        hugging_face(
            "OPTConfig OPTForCausalLM",
            vocab_size=64,
            hidden_size=32,
            num_hidden_layers=2,
            ffn_dim=48,
            num_attention_heads=2,
            max_position_embeddings=32,
            dropout=0.0,
            word_embed_proj_dim=32,
        )
    ),
    "ResNet": Script(
        hugging_face(
            "ResNetConfig ResNetForImageClassification", embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]
        ),
        batch="batch = {'pixel_values': torch.randn(2, 3, 32, 32), 'labels': torch.tensor([0, 1])}",
    ),
    "a low-rank adapter": Script(
        "from torch import nn\n"
        "class Lora(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.base, self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 2), nn.Linear(2, 8, bias=False)\n"
        "        self.base.requires_grad_(False)\n"
        "    def forward(self, x):\n        return self.base(x) + self.b(self.a(x))\n"
        "model = Lora()",
        batch="batch = {'x': torch.randn(4, 8)}",
        loss="model(batch['x']).square().mean()",
    ),
    "a denoising step": Script(
        "from torch import nn\n"
        "model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.SiLU(), nn.ConvTranspose2d(8, 8, 2, 2),"
        " nn.GroupNorm(2, 8), nn.AvgPool2d(2), nn.Conv2d(8, 3, 3, padding=1))",
        batch="batch = {'x': torch.randn(2, 3, 8, 8), 'n': torch.randn(2, 3, 8, 8), 't': torch.tensor([.3, .7])}",
        loss="torch.nn.functional.mse_loss(model(batch['x'] + batch['t'].view(-1, 1, 1, 1) * batch['n']), batch['n'])",
    ),
    "double precision": Script(
        "model = torch.nn.Linear(4, 4).double()",
        batch="batch = {'x': torch.randn(6, 4, dtype=torch.float64)}",
        loss="model(batch['x']).square().mean()",
    ),
    "a convolutional network": Script(
        "from torch import nn\n"
        "model = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3),"
        " nn.GroupNorm(2, 8), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))",
        batch="batch = {'x': torch.randn(2, 3, 16, 16), 'y': torch.tensor([0, 3])}",
        loss="torch.nn.functional.cross_entropy(model(batch['x']), batch['y'])",
    ),
    "a recurrent network on packed sequences": Script(
        "from torch import nn\nfrom torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.cell = nn.LSTM(4, 8)\n"
        "    def forward(self, x):\n"
        "        return pad_packed_sequence(self.cell(pack_padded_sequence(x, torch.tensor([5, 3])))[0])[0]\n"
        "model = Net()",
        batch="batch = {'x': torch.randn(5, 2, 4)}",
        loss="model(batch['x']).square().mean()",
    ),
    "a loss on masked rows": Script(
        "model = torch.nn.Linear(4, 4)",
        batch="batch = {'x': torch.randn(6, 4), 'm': torch.tensor([1, 0, 1, 1, 0, 0]).bool()}",
        loss="model(batch['x'])[batch['m']].square().mean()",
        cuts=frozenset({"non zero", "index_put_frontend_impl_hpu_lazy"}),  # the mask as an index, forward and backward
    ),
    "a spectral loss": Script(
        "model = torch.nn.Linear(8, 8)",
        batch="batch = {'x': torch.randn(2, 8)}",
        loss="torch.digamma(model(batch['x']).abs() + 1).mean()",
        cuts=frozenset({"cpu fallback aten::digamma", "cpu fallback aten::polygamma"}),
        fallbacks=frozenset({"aten::digamma", "aten::polygamma"}),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_values_cuts_and_fallbacks(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    script = SCRIPTS[name]

    here = run(tmp_path, script.source, "hpu")
    values = losses(capsys)
    run(tmp_path, script.source, "cpu")

    assert here.done.exit_code == 0
    assert (len(values), here.done.steps) == (3, 3)
    assert values == pytest.approx(losses(capsys), rel=1e-4)
    assert reasons(here) == KNOWN | script.cuts
    assert set(here.metrics["cpu_fallback"]["FallbackOps"]) == script.fallbacks


def losses(capsys: pytest.CaptureFixture[str]) -> list[float]:
    return [float(line.split()[1]) for line in capsys.readouterr().out.splitlines() if line.startswith("loss ")]


def reasons(done: Run) -> set[str]:
    return {line.split("step marker due to ")[1] for line in done.log.splitlines() if "step marker due to" in line}
