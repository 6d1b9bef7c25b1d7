"""The Transformers Trainer with its defaults."""

import sys
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

torch.manual_seed(0)
data = [{"input_ids": torch.randint(1, 64, (12,)), "labels": i % 2} for i in range(12)]
cfg = BertConfig(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=48,
    max_position_embeddings=32,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
model = BertForSequenceClassification(cfg)


class Show(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kw):
        if "loss" in logs:
            print("value", logs["loss"])


with tempfile.TemporaryDirectory() as d:
    args = TrainingArguments(
        d,
        num_train_epochs=1,
        per_device_train_batch_size=4,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=sys.argv[1] == "cpu",
        disable_tqdm=True,
        seed=0,
    )
    trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[Show()])
    trainer.train()
print("device", next(model.parameters()).device, file=sys.stderr)
