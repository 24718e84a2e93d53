"""Fine-tune a BERT of Hugging Face's transformers to tell sentences apart that are made here: is the second number the larger?

python examples/finetune_bert.py [--steps 120]
"""

import argparse
import sys

import torch

import sardonyx

try:
    from transformers import BertConfig, BertForSequenceClassification
except ImportError:
    print("this example needs transformers: pip install transformers")
    sys.exit(0)

WORDS = ("[PAD]", "[CLS]", "[SEP]", "less", "more", *(f"number{value}" for value in range(10)))


def sentences(count: int) -> dict[str, torch.Tensor]:
    """[CLS] a [SEP] b [SEP], with padding of random length: the label says whether b is larger than a."""
    numbers = torch.randint(0, 10, (count, 2))
    tokens = torch.zeros(count, 8, dtype=torch.int64)
    first = WORDS.index("number0")
    for column, value in enumerate((WORDS.index("[CLS]"), numbers[:, 0] + first, 2, numbers[:, 1] + first, 2)):
        tokens[:, column] = value
    length = int(torch.randint(5, 9, ()))  # another length in each batch: nothing is compiled anew
    tokens = tokens[:, :length]
    return {"input_ids": tokens, "attention_mask": (tokens != 0).long(), "labels": (numbers[:, 1] > numbers[:, 0]).long()}


def main() -> None:
    """Train, and say how well it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        vocab_size=len(WORDS),
        max_position_embeddings=16,
        num_labels=2,
    )
    model = sardonyx.training.TrainingModule(BertForSequenceClassification(config))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    model.train()
    for step in range(steps):
        result = model(**sentences(64))
        optimizer.zero_grad()
        result.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:3}: loss {result.loss.item():.3f}")
    batch = sentences(500)
    with torch.no_grad():
        guesses = model.eval()(**batch).logits.argmax(1)
    accuracy = (guesses == batch["labels"]).float().mean().item()
    print(f"accuracy on new sentences: {accuracy:.1%}")
    if steps >= 120 and accuracy < 0.9:
        raise SystemExit("it has not learned")


if __name__ == "__main__":
    main()
